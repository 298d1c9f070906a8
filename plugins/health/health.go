// SPDX-License-Identifier: Apache-2.0

// Package health judges whether the ports and PCI Express links of PFs and GPUs work: good, degraded or
// failed, from the kernel's counters in sysfs.
//
//	/sys ──read──▶ Sample ──judge──▶ Verdict ──Monitor──▶ the daemons' devices
//
// A [Monitor] reads each function every [Config].Interval. A [Rule] limits the increase of a counter within a
// window; further causes are a port without a link and a PCI Express link below its maximum. A verdict gets
// worse at once, and better only after all causes have been absent for Config.Quiet, so that a link that goes
// up and down changes the list of devices at most once in that time. All state is a copy of the counters: a
// restarted daemon begins with the present values and remembers no earlier increase. A value that cannot be
// read is unknown and is no cause.
//
// The counters are those of the function, not of its VFs: port counters count all traffic of the port, but
// hw_counters only the function's own queue pairs.
package health

import (
	"cmp"

	"github.com/tandem-k8s/tandem/topology"
)

// State is the health of a function. A higher state is worse.
type State int

// States.
const (
	Good     State = iota
	Degraded       // it works, but worse than it should: chosen last
	Failed         // it is not to be used
)

func (s State) String() string {
	switch s {
	case Degraded:
		return "degraded"
	case Failed:
		return "failed"
	default:
		return "good"
	}
}

// Verdict is the health of a function with the cause. The reason has no numbers that change, so that a
// verdict changes only with the state or the cause.
type Verdict struct {
	State  State
	Reason string // "link_downed increased"; "" for good
}

// worse orders verdicts: the worse state first, then by reason.
func worse(a, b Verdict) int {
	return cmp.Or(cmp.Compare(b.State, a.State), cmp.Compare(a.Reason, b.Reason))
}

// Verdicts are the verdicts other than good, by function.
type Verdicts map[topology.Address]Verdict
