// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/test/vm/cluster"
	"github.com/tandem-k8s/tandem/topology/nccl"
)

const measured = `{"failures": [], "traffic": {
	"pairs": [
		{"vf": "0000:25:10.0", "verdict": "ok", "gbps": 0.2, "reasons": []},
		{"vf": "0000:2d:10.0", "verdict": "ok", "gbps": 0.1, "reasons": []}],
	"runs": [{"from": 0, "to": 0, "bytes": 2000}, {"from": 1, "to": 1, "bytes": 1000}]}}`

// asMeasured reads a measurement with one text in place of another.
func asMeasured(t *testing.T, text, from, to string, code int) *measurement {
	t.Helper()
	m := measurement{code: code}
	if from != "" {
		text = strings.Replace(text, from, to, 1)
	}
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatal(err)
	}
	return &m
}

func holding(vfs ...string) holder {
	return holder{saw: &cluster.Outcome{Containers: []cluster.View{{VFs: vfs}}}}
}

func TestJudgeMeasurement(t *testing.T) {
	h, sent := holding(nearVF, farVF), map[string]uint64{"0000:25:10.0": 2000, "0000:2d:10.0": 1000}
	for _, c := range []struct {
		name, from, to string
		code           int
		h              holder
		sent           map[string]uint64
		fault          string
	}{
		{"good", "", "", 0, h, sent, ""},
		{"exit code", "", "", 1, h, sent, "exit code 1"},
		{"another order", "", "", 0, holding(farVF, nearVF), sent, "the variable has"},
		{"no bandwidth", `"gbps": 0.1`, `"gbps": 0`, 0, h, sent, "pair 1 is ok with 0"},
		{"slow", `"ok"`, `"slow"`, 0, h, sent, "pair 0 is slow"},
		{"no bytes", `"bytes": 1000`, `"bytes": 0`, 0, h, sent, "pair 1 wrote 0 bytes"},
		{"bytes of another VF", "", "", 0, h, map[string]uint64{"0000:2d:10.0": 5000}, "0000:25:10.0 sent 0"},
		{"no run of a pair", `, {"from": 1, "to": 1, "bytes": 1000}`, "", 0, h, sent, "1 of 2 pairs have a run"},
		{"no runs", `"runs"`, `"other"`, 0, h, sent, "0 of 2 pairs have a run"},
		{"a run of no pair", `"from": 1`, `"from": 2`, 0, h, sent, "a run from pair 2 of 2"},
		{"a receiver", `"from": 0, "to": 0, "bytes": 2000}, {"from": 1`, `"from": -1, "to": 0}, {"from": -1`, 0, h,
			nil, ""},
	} {
		got := asMeasured(t, measured, c.from, c.to, c.code).judge(c.h, c.sent)
		if !strings.Contains(got, c.fault) || (got == "") != (c.fault == "") {
			t.Errorf("%s: %q, want %q", c.name, got, c.fault)
		}
	}
}

func TestJudgeFailures(t *testing.T) {
	good := strings.NewReplacer(`"failures": []`, `"failures": ["pair 1: run", "pair 0: 8 %"]`,
		`"ok", "gbps": 0.2`, `"slow", "gbps": 0.2`,
		`"ok", "gbps": 0.1, "reasons": []`, `"failed", "gbps": 0, "reasons": ["port 1: DOWN"]`).Replace(measured)
	for _, c := range []struct {
		name, from, to string
		code           int
		fault          bool
	}{
		{"as it should be", "", "", 1, false},
		{"exit code", "", "", 0, true},
		{"not slow", `"slow"`, `"ok"`, 1, true},
		{"another reason", "port 1: DOWN", "port 4: ACTIVE", 1, true},
		{"a failure is not named", `, "pair 0: 8 %"`, "", 1, true},
	} {
		m := asMeasured(t, good, c.from, c.to, c.code)
		if got := m.judgeFailures(holding(nearVF, farVF)); (got != "") != c.fault {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}

// TestDump: a GPU and a NIC below one switch, a NIC behind a switch more, a NIC on a root port, and functions
// that are neither GPUs nor NICs.
func TestDump(t *testing.T) {
	t.Parallel()
	const root = "/sys/devices/pci0000:07/0000:07:00.0"
	text := dump(strings.Join([]string{
		root + " 0x060400 0",
		root + "/0000:08:00.0 0x060400 0",
		root + "/0000:08:00.0/0000:09:00.0/0000:0a:00.0 0x030200 0",
		root + "/0000:08:00.0/0000:09:01.0/0000:0b:00.0 0x020000 0",
		root + "/0000:08:00.0/0000:09:02.0/0000:0c:00.0/0000:0d:00.0/0000:0e:00.0 0x020000 0",
		"/sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0 0x020000 1",
		"/sys/devices/pci0000:80/0000:80:02.0/0000:82:00.0 0x010802 1",
	}, "\n"))
	f, err := nccl.Read("dump", strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	var got []string
	for _, function := range f.Functions() {
		got = append(got, fmt.Sprint(function.Address, " on ", function.NUMA, " below ", function.Bridges))
	}
	want := []string{
		"0000:0a:00.0 on 0 below [0000:08:00.0]", "0000:0b:00.0 on 0 below [0000:08:00.0]",
		"0000:0e:00.0 on 0 below [0000:08:00.0 0000:0c:00.0]", "0000:81:00.0 on 1 below []",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
