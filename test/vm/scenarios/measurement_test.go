// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/test/vm/cluster"
)

const measured = `{"failures": [], "traffic": {
	"pairs": [
		{"vf": "0000:25:10.0", "verdict": "ok", "gbps": 0.2, "reasons": []},
		{"vf": "0000:2d:10.0", "verdict": "ok", "gbps": 0.1, "reasons": []}],
	"runs": [{"from": 0, "to": 0, "bytes": 2000}, {"from": 1, "to": 1, "bytes": 1000}]}}`

func TestJudgeMeasurement(t *testing.T) {
	h := holder{saw: &cluster.Outcome{Containers: []cluster.View{{VFs: []string{nearVF, farVF}}}}}
	turned := holder{saw: &cluster.Outcome{Containers: []cluster.View{{VFs: []string{farVF, nearVF}}}}}
	sent := map[string]uint64{"0000:25:10.0": 2000, "0000:2d:10.0": 1000}
	for _, c := range []struct {
		name, from, to string
		code           int
		h              holder
		sent           map[string]uint64
		fault          string
	}{
		{name: "good", h: h, sent: sent},
		{name: "exit code", code: 1, h: h, sent: sent, fault: "exit code 1"},
		{name: "another order", h: turned, sent: sent, fault: "the variable has"},
		{
			name: "no bandwidth", from: `"gbps": 0.1`, to: `"gbps": 0`, h: h, sent: sent,
			fault: "pair 1 is ok with 0",
		},
		{name: "slow", from: `"ok"`, to: `"slow"`, h: h, sent: sent, fault: "pair 0 is slow"},
		{
			name: "no bytes", from: `"bytes": 1000`, to: `"bytes": 0`, h: h, sent: sent,
			fault: "pair 1 wrote 0 bytes",
		},
		{
			name: "bytes of another VF", h: h, sent: map[string]uint64{"0000:2d:10.0": 5000},
			fault: "0000:25:10.0 sent 0",
		},
		{
			name: "no run of a pair", from: `, {"from": 1, "to": 1, "bytes": 1000}`, h: h, sent: sent,
			fault: "1 of 2 pairs have a run",
		},
		{name: "no runs", from: `"runs"`, to: `"other"`, h: h, sent: sent, fault: "0 of 2 pairs have a run"},
		{
			name: "a run of no pair", from: `"from": 1`, to: `"from": 2`, h: h, sent: sent,
			fault: "a run from pair 2 of 2",
		},
		{
			name: "a receiver", from: `"from": 0, "to": 0, "bytes": 2000}, {"from": 1`,
			to: `"from": -1, "to": 0}, {"from": -1`, h: h,
		},
	} {
		m := measurement{code: c.code}
		text := measured
		if c.from != "" {
			text = strings.Replace(measured, c.from, c.to, 1)
		}
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			t.Fatal(err)
		}
		if got := m.judge(c.h, c.sent); !strings.Contains(got, c.fault) || (got == "") != (c.fault == "") {
			t.Errorf("%s: %q, want %q", c.name, got, c.fault)
		}
	}
}

func TestJudgeFailures(t *testing.T) {
	h := holder{saw: &cluster.Outcome{Containers: []cluster.View{{VFs: []string{nearVF, farVF}}}}}
	good := strings.NewReplacer(`"failures": []`, `"failures": ["pair 1: run", "pair 0: 8 %"]`,
		`"ok", "gbps": 0.2`, `"slow", "gbps": 0.2`,
		`"ok", "gbps": 0.1, "reasons": []`, `"failed", "gbps": 0, "reasons": ["port 1: DOWN"]`).Replace(measured)
	for _, c := range []struct {
		name, from, to string
		code           int
		fault          bool
	}{
		{name: "as it should be", code: 1},
		{name: "exit code", code: 0, fault: true},
		{name: "not slow", code: 1, from: `"slow"`, to: `"ok"`, fault: true},
		{name: "another reason", code: 1, from: "port 1: DOWN", to: "port 4: ACTIVE", fault: true},
		{name: "a failure is not named", code: 1, from: `, "pair 0: 8 %"`, fault: true},
	} {
		m := measurement{code: c.code}
		text := good
		if c.from != "" {
			text = strings.Replace(good, c.from, c.to, 1)
		}
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			t.Fatal(err)
		}
		if got := m.judgeFailures(h); (got != "") != c.fault {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}
