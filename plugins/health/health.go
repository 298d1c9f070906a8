// SPDX-License-Identifier: Apache-2.0

// Package health judges whether the ports and PCI Express links of PFs and GPUs work: good, degraded or
// failed, from the kernel's counters in sysfs.
//
//	/sys ──read──▶ reading ──judge──▶ Verdict ──Monitor──▶ the daemons' devices
//
// A [Monitor] reads each function every [Config].Interval. A [rule] limits the increase of a counter within a
// window; further causes are a port without a link and a PCI Express link below its maximum. A verdict gets
// worse at once, and better only after all causes have been absent for Config.Quiet, so that a link that goes
// up and down changes the list of devices at most once in that time. All state is a copy of the counters: a
// restarted daemon begins with the present values and remembers no earlier increase. A state that cannot be
// read is unknown: it is no cause, and keeps the causes of the last one.
//
// The counters are those of the function, not of its VFs: port counters count all traffic of the port, but
// hw_counters only the function's own queue pairs.
//
// [GPUHealth] and [NICHealth] are what the AMD Device Metrics Exporter says, whose counters no file has.
package health

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

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

// compareVerdicts orders verdicts: the worse state first, then by reason.
func compareVerdicts(a, b Verdict) int {
	return cmp.Or(cmp.Compare(b.State, a.State), cmp.Compare(a.Reason, b.Reason))
}

// verdicts are the verdicts other than good, by function.
type verdicts map[topology.Address]Verdict

// Report collects the devices of a resource whose health has changed, for the log of a plugin: both plugins
// use the same words.
type Report struct {
	devices map[Verdict][]string
}

// Add adds a device with its health now: its plugin can have other reasons than those of a [Monitor].
func (r *Report) Add(device string, now Verdict) {
	if r.devices == nil {
		r.devices = map[Verdict][]string{}
	}
	r.devices[now] = append(r.devices[now], device)
}

// IsEmpty reports whether no health has changed.
func (r *Report) IsEmpty() bool { return len(r.devices) == 0 }

// Log writes a line for each state and reason, the worst first.
func (r *Report) Log(log *slog.Logger) {
	for _, v := range slices.SortedFunc(maps.Keys(r.devices), compareVerdicts) {
		devices := slices.Compact(r.devices[v])
		switch v.State {
		case Failed:
			log.Warn("devices failed", "reason", v.Reason, "devices", devices)
		case Degraded:
			log.Warn("devices degraded: chosen last", "reason", v.Reason, "devices", devices)
		default:
			log.Info("devices good again", "devices", devices)
		}
	}
}

// judge decides on one function from its samples.
type judge struct {
	config *Config
	gpu    bool
	rises  map[limit]*rise
	causes map[cause]time.Time // time until which each cause counts
}

// cause is a verdict with what it is of: another port or counter does not renew it.
type cause struct {
	Verdict
	of string // file of the counter, name of the port, linkSpeed or linkWidth
}

// limit is a rule for one counter file.
type limit struct {
	rule rule
	file string
}

func newJudge(config *Config, gpu bool) *judge {
	return &judge{config: config, gpu: gpu, rises: map[limit]*rise{}, causes: map[cause]time.Time{}}
}

// addSample adds a sample and returns the verdict.
func (j *judge) addSample(s reading, now time.Time) Verdict {
	for _, c := range slices.Concat(j.counterCauses(s, now), j.portCauses(s), j.linkCauses(s), j.keptCauses(s)) {
		j.causes[c] = now.Add(j.config.Quiet)
	}
	var verdict Verdict
	for c, until := range j.causes {
		switch {
		case !now.Before(until):
			delete(j.causes, c)
		case verdict == Verdict{} || compareVerdicts(c.Verdict, verdict) < 0:
			verdict = c.Verdict
		}
	}
	return verdict
}

// keptCauses returns the causes of ports and of the link whose states are unknown now. A state that has never
// been read has none.
func (j *judge) keptCauses(s reading) (causes []cause) {
	unread := map[string]bool{linkSpeed: s.Link.Speed == 0, linkWidth: s.Link.Width == 0}
	for _, p := range s.Ports {
		unread[p.Name] = p.Unread
	}
	for c := range j.causes {
		if unread[c.of] {
			causes = append(causes, c)
		}
	}
	return causes
}

// counterCauses returns the causes by rules. A counter that is absent begins anew when it is there again.
func (j *judge) counterCauses(s reading, now time.Time) (causes []cause) {
	present := map[limit]*rise{}
	for c, value := range s.Counters {
		for _, rule := range j.config.Rules {
			if rule.Counter != c.Name {
				continue
			}
			at := limit{rule, c.File}
			present[at] = j.rises[at]
			if present[at] == nil {
				present[at] = &rise{}
			}
			its := cause{Verdict{rule.State, rule.describeCause()}, c.File}
			if present[at].addValue(rule, value, now) || isFull(c.Name, value) && j.isKnown(its) {
				causes = append(causes, its)
			}
		}
	}
	j.rises = present
	return causes
}

// full are the maximums at which small counters stay (PORT_PMA_ATTR in drivers/infiniband/core/sysfs.c).
// Whether the cause goes on is then unknown: a degraded state stays until the counter is reset.
var full = map[string]uint64{
	"symbol_error": 1<<16 - 1, "port_rcv_errors": 1<<16 - 1, "port_xmit_discards": 1<<16 - 1,
	"link_error_recovery": 1<<8 - 1,
}

// isFull reports whether a small counter is at its maximum.
func isFull(counter string, value uint64) bool {
	most, isSmall := full[counter]
	return isSmall && value == most
}

// isKnown reports whether a cause of a degraded state counts.
func (j *judge) isKnown(c cause) bool {
	_, known := j.causes[c]
	return known && c.State == Degraded
}

// portCauses returns the causes by ports without a link. Of several ports the best counts: the function has
// failed if none has a link. A port that has never had a link may have no cable: it is chosen last, but
// offered, because its VFs reach each other.
func (j *judge) portCauses(s reading) (causes []cause) {
	if !j.config.judges(causePort) {
		return nil
	}
	lost := Failed
	if slices.ContainsFunc(s.Ports, func(p portState) bool { return p.Up }) {
		lost = Degraded
	}
	for _, p := range s.Ports {
		switch {
		case p.Up, p.Unread:
		case p.WasUp:
			causes = append(causes, cause{Verdict{lost, p.describeState()}, p.Name})
		default:
			causes = append(causes, cause{Verdict{Degraded, p.describeState() + " since its creation"}, p.Name})
		}
	}
	return causes
}

// Names of the values of a PCI Express link.
const (
	linkSpeed = "PCIe speed"
	linkWidth = "PCIe width"
)

// linkCauses returns the cause by a PCI Express link below what both of its ends allow.
func (j *judge) linkCauses(s reading) []cause {
	switch l := s.Link; {
	case !j.config.judges(causeLink) || !l.DegradedOf(j.gpu):
		return nil
	case l.Narrow():
		return []cause{{Verdict{Degraded, fmt.Sprintf("%s %d of %d", linkWidth, l.Width, l.MaxWidth)}, linkWidth}}
	default:
		return []cause{
			{Verdict{Degraded, fmt.Sprintf("%s %g of %g GT/s", linkSpeed, l.Speed, l.MaxSpeed)}, linkSpeed},
		}
	}
}

// rise is the increase of a counter within a window, from a bounded number of points.
type rise struct {
	points []point // ascending in time
	last   uint64
}

type point struct {
	at    time.Time
	value uint64
}

// mostPoints is the number of points of a window: the window is exact to this part of it.
const mostPoints = 32

// addValue adds a value and reports whether the counter has increased by more than a rule allows since the
// oldest point within the window. A counter that decreases has been reset and begins anew. A rule that
// allows no increase allows none since the last value either, even if that is older than the window: the
// device of a failing port can take long to answer.
func (r *rise) addValue(rule rule, value uint64, now time.Time) bool {
	if value < r.last {
		r.points = r.points[:0]
	}
	before, wasKnown := r.last, len(r.points) > 0
	r.last = value
	r.points = slices.DeleteFunc(r.points, func(p point) bool { return now.Sub(p.at) > rule.Window })
	if rule.Above == 0 && wasKnown && len(r.points) == 0 {
		r.points = append(r.points, point{now, before})
	}
	n := len(r.points)
	if n == 0 || now.Sub(r.points[n-1].at) >= rule.Window/mostPoints {
		r.points = append(r.points, point{now, value})
	}
	return value-r.points[0].value > rule.Above
}
