// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Choice is the result of one selector of a resource on the devices that the selector may mean (isLikely).
// Devices of earlier selectors of the same resource are omitted.
type Choice struct {
	Resource string // its full name
	Selector int    // its place in the resource, from 1
	Of       int    // number of selectors of the resource
	Selected int
	Rejected int
	Reasons  []Reason // in the order of the checks
	// Nearest are the devices that failed a single condition, one per condition, the most telling first; without
	// one, the first device that failed the fewest conditions.
	Nearest []miss
	// Misspelt are unknown drivers that resemble a known one: "mlx5-core (did you mean mlx5_core?)".
	Misspelt []string
}

// Reason is a condition that devices do not fulfil.
type Reason struct {
	Key   string // of the selector, or one of the other reasons
	Count int    // of devices
	Alone int    // of those, without another reason
}

// miss is a device that was rejected.
type miss struct {
	Device string // ID, of a shared HCA its address
	Why    string // all reasons, "pfNames: want ens1#0-3, it has ens1#4; drivers: want ice, it has iavf"
	More   int    // further devices that were rejected for the same reasons
}

// Explain returns the result of each selector of a configuration, in order. Its errors are those of Find.
func (f Finder) Explain(c *Config) ([]Choice, error) {
	m, err := f.surveyMachine(c)
	if err != nil {
		return nil, err
	}
	owners := map[string]string{} // resources of claimed devices
	var choices []Choice
	all := slices.Concat(m.candidates, m.findUnbound())
	for i := range c.Resources {
		r := &c.Resources[i]
		for k := range r.Selectors {
			b := matcher{resource: r, name: m.names[i], selector: &r.Selectors[k], owners: owners}
			texts, misspelt := m.questionDrivers(b.selector.Drivers)
			b.drivers = texts
			choice := b.judgeAll(all)
			choice.Misspelt = misspelt
			choice.Selector, choice.Of = k+1, len(r.Selectors)
			choices = append(choices, choice)
		}
	}
	return choices, nil
}

// findUnbound returns the functions without a driver, which are no candidates: a common mistake for VFs.
func (m *machine) findUnbound() (list []*function) {
	for d := range m.tree.Devices() {
		if d.Driver == "" {
			list = append(list, &function{Device: d, machine: m})
		}
	}
	return list
}

// rejection is a rejected device with all reasons.
type rejection struct {
	function *function
	failures []failure
}

func (r rejection) failedKeys() (keys []string) {
	for _, f := range r.failures {
		keys = append(keys, f.key)
	}
	return keys
}

func (b *matcher) judgeAll(all []*function) Choice {
	choice := Choice{Resource: b.name}
	var rejected, describedPFs []rejection
	for _, f := range all {
		failures := b.findFailures(f)
		switch {
		case !b.isOffered(f):
		case len(failures) == 0:
			choice.Selected++
			b.claimDevice(f)
		case b.isLikely(f, failures):
			rejected = append(rejected, rejection{f, failures})
		case f.Driver != "" && len(failures) == 1 && failures[0].key == reasonInUse:
			describedPFs = append(describedPFs, rejection{f, failures})
		}
	}
	meetsAll := func(r rejection) bool { return !slices.ContainsFunc(r.failedKeys(), isCondition) }
	if choice.Selected == 0 && !slices.ContainsFunc(rejected, meetsAll) { // it describes the PFs, not their VFs
		rejected = append(rejected, describedPFs...)
	}
	choice.Rejected = len(rejected)
	alone := choice.countReasons(rejected)
	// A single reason is most probably the mistake, the more devices have it.
	single := slices.DeleteFunc(slices.Clone(choice.Reasons), func(r Reason) bool { return r.Alone == 0 })
	slices.SortStableFunc(single, func(x, y Reason) int {
		return cmp.Or(cmp.Compare(rankReason(x.Key), rankReason(y.Key)), cmp.Compare(y.Alone, x.Alone))
	})
	for _, reason := range single {
		choice.Nearest = append(choice.Nearest, b.describeMisses(alone[reason.Key]))
	}
	if len(single) == 0 && len(rejected) > 0 {
		choice.Nearest = []miss{b.describeMisses(b.findNearest(rejected))}
	}
	return choice
}

// countReasons counts the reasons of rejected devices, and returns the devices with a single reason, by
// reason.
func (c *Choice) countReasons(rejected []rejection) (alone map[string][]rejection) {
	alone = map[string][]rejection{}
	for _, key := range reasons {
		reason := Reason{Key: key}
		for _, r := range rejected {
			keys := r.failedKeys()
			if slices.Contains(keys, key) {
				reason.Count++
			}
			if slices.Equal(keys, []string{key}) {
				alone[key] = append(alone[key], r)
				reason.Alone++
			}
		}
		if reason.Count > 0 {
			c.Reasons = append(c.Reasons, reason)
		}
	}
	return alone
}

// findNearest returns the devices with the fewest reasons, all with the same, preferably those of a device of
// the resource's usual kind.
func (b *matcher) findNearest(rejected []rejection) (nearest []rejection) {
	best := slices.MinFunc(rejected, func(x, y rejection) int {
		return cmp.Compare(len(x.failures), len(y.failures))
	})
	usual := func(r rejection) bool { return len(r.failures) == len(best.failures) && b.isUsual(r.function) }
	if i := slices.IndexFunc(rejected, usual); i >= 0 {
		best = rejected[i]
	}
	for _, r := range rejected {
		if slices.Equal(r.failedKeys(), best.failedKeys()) {
			nearest = append(nearest, r)
		}
	}
	return nearest
}

// describeMisses describes devices with the same reasons by the first one, preferably of the resource's usual
// kind.
func (b *matcher) describeMisses(same []rejection) miss {
	first := max(0, slices.IndexFunc(same, func(r rejection) bool { return b.isUsual(r.function) }))
	var why []string
	for _, failed := range same[first].failures {
		why = append(why, failed.why)
	}
	return miss{Device: same[first].function.id(), Why: strings.Join(why, "; "), More: len(same) - 1}
}

// rankReason rates a single reason by how telling it is; 0 is the most telling.
func rankReason(key string) int {
	switch {
	case key == reasonTaken:
		return 1
	case slices.Contains(byName, key):
		return 2
	default:
		return 0
	}
}

// Summary returns the counts by reason: "vendors 8 (5 alone), isRdma 3"; "" for none.
func (c Choice) Summary() string {
	var said []string
	for _, r := range c.Reasons {
		text := fmt.Sprintf("%s %d", r.Key, r.Count)
		if r.Alone > 0 {
			text += fmt.Sprintf(" (%d alone)", r.Alone)
		}
		said = append(said, text)
	}
	return strings.Join(said, ", ")
}

// String returns the device and its reason, for people.
func (m miss) String() string {
	more := ""
	if m.More > 0 {
		more = fmt.Sprintf(" (and %d more)", m.More)
	}
	return m.Device + ": " + m.Why + more
}
