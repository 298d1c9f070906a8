// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/test/vm/cluster"
)

// measurement has the exit code of "tandem verify --traffic" and a part of the JSON document.
type measurement struct {
	code     int
	Failures []string
	Traffic  struct {
		Pairs []struct {
			VF, Verdict string
			Gbps        float64
			Reasons     []string
		}
		Runs []struct {
			From, To int // pairs; -1 for one of the other pod
			Bytes    uint64
		}
	}
}

// least are the flags of a short measurement without thresholds: the bandwidths of an emulated machine differ
// by more than those of NICs.
var least = []string{"--traffic-seconds=1", "--traffic-min=0"}

// measure runs the command in a pod.
func (m *measurement) measure(ctx context.Context, n *cluster.Node, h holder, flags ...string) error {
	count := len(h.vfs())
	command := []string{"tandem", "verify", "--traffic", "-o", "json",
		fmt.Sprintf("--gpus=%d", count), fmt.Sprintf("--vfs=%d", count)}
	var err error
	m.code, err = n.ExecJSON(ctx, h.pod, m, append(command, flags...)...)
	return err
}

// judge returns the fault of a measurement that has to succeed, "" for none: the pairs' VFs are those of the
// container's variable, in the variable's order, and each VF has sent the bytes that the pair has written.
// The bytes sent are by VF; nil for a pod that only receives.
func (m *measurement) judge(h holder, sent map[string]uint64) string {
	if m.code != 0 || len(m.Failures) > 0 {
		return fmt.Sprintf("exit code %d: %s", m.code, strings.Join(m.Failures, "; "))
	}
	if vfs := m.vfs(); !slices.Equal(vfs, h.vfs()) {
		return fmt.Sprintf("the traffic is of %v, the variable has %v", vfs, h.vfs())
	}
	for i, p := range m.Traffic.Pairs {
		if p.Gbps <= 0 || p.Verdict != "ok" {
			return fmt.Sprintf("pair %d is %s with %g Gb/s", i, p.Verdict, p.Gbps)
		}
	}
	ran := map[int]bool{}
	for _, run := range m.Traffic.Runs {
		switch {
		case run.From >= len(m.Traffic.Pairs):
			return fmt.Sprintf("a run from pair %d of %d", run.From, len(m.Traffic.Pairs))
		case run.From < 0:
			ran[run.To] = true
			continue
		}
		ran[run.From] = true
		if vf := m.Traffic.Pairs[run.From].VF; run.Bytes == 0 || sent[vf] < run.Bytes {
			return fmt.Sprintf("pair %d wrote %d bytes, but %s sent %d", run.From, run.Bytes, vf, sent[vf])
		}
	}
	if pairs := len(m.Traffic.Pairs); len(ran) != pairs {
		return fmt.Sprintf("%d of %d pairs have a run", len(ran), pairs)
	}
	return ""
}

// judgeFailures returns the fault of a measurement with a threshold that no pair reaches and a last port that
// is down.
func (m *measurement) judgeFailures(h holder) string {
	pairs := m.Traffic.Pairs
	if m.code != 1 || len(m.Failures) != len(pairs) || !slices.Equal(m.vfs(), h.vfs()) {
		return fmt.Sprintf("exit code %d, VFs %v: %s", m.code, m.vfs(), strings.Join(m.Failures, "; "))
	}
	for i, p := range pairs {
		want, reason := "slow", ""
		if i == len(pairs)-1 {
			want, reason = "failed", "port 1: DOWN"
		}
		if p.Verdict != want || reason != "" && !slices.Contains(p.Reasons, reason) {
			return fmt.Sprintf("pair %d is %s (%s), want %s (%s)", i, p.Verdict, strings.Join(p.Reasons, ", "), want,
				reason)
		}
	}
	return ""
}

func (m *measurement) vfs() (addresses []string) {
	for _, p := range m.Traffic.Pairs {
		addresses = append(addresses, p.VF)
	}
	return addresses
}

// String returns the result of each pair.
func (m *measurement) String() string {
	var list []string
	for i, p := range m.Traffic.Pairs {
		text := fmt.Sprintf("pair %d: %s %.3f Gb/s", i, p.Verdict, p.Gbps)
		list = append(list, strings.Join(append([]string{text}, p.Reasons...), ", "))
	}
	return strings.Join(list, "; ")
}
