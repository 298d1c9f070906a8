// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Choice is the result of one selector of a resource on the devices that the selector may mean: see
// bench.likely. Devices of earlier selectors of the same resource are omitted.
type Choice struct {
	Resource string // its full name
	Selector int    // its place in the resource, from 1
	Of       int    // number of selectors of the resource
	Selected int
	Rejected int
	Reasons  []Reason // in the order of the checks
	// Nearest are the devices that failed a single condition, one per condition, the most telling first; without
	// one, the first device that failed the fewest conditions.
	Nearest []Miss
	// Misspelt are unknown drivers that resemble a known one: "mlx5-core (did you mean mlx5_core?)".
	Misspelt []string
}

// Reason is a condition that devices do not fulfil.
type Reason struct {
	Key   string // of the selector, or one of the other reasons
	Count int    // of devices
	Alone int    // of those, without another reason
}

// Miss is a device that was rejected.
type Miss struct {
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

// tally counts the devices that were rejected for one reason.
type tally struct {
	Reason
	nearest Miss
	meant   bool // of the resource's usual kind
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
	choice.addTallies(b.tallyReasons(rejected))
	if nearest, some := b.findNearest(rejected); some && len(choice.Nearest) == 0 {
		choice.Nearest = []Miss{nearest}
	}
	return choice
}

// tallyReasons counts rejected devices by reason.
func (b *matcher) tallyReasons(rejected []rejection) map[string]*tally {
	tallies := map[string]*tally{}
	for _, r := range rejected {
		for _, failed := range r.failures {
			if tallies[failed.key] == nil {
				tallies[failed.key] = &tally{Reason: Reason{Key: failed.key}}
			}
			tallies[failed.key].countDevice(r.function.id(), failed.why, len(r.failures) == 1, b.isUsual(r.function))
		}
	}
	return tallies
}

// findNearest returns the device with the fewest reasons, preferably of the resource's usual kind; false
// without rejected devices.
func (b *matcher) findNearest(rejected []rejection) (Miss, bool) {
	if len(rejected) == 0 {
		return Miss{}, false
	}
	unusual := func(r rejection) int {
		if b.isUsual(r.function) {
			return 0
		}
		return 1
	}
	best := slices.MinFunc(rejected, func(x, y rejection) int {
		return cmp.Or(cmp.Compare(len(x.failures), len(y.failures)), cmp.Compare(unusual(x), unusual(y)))
	})
	var why []string
	for _, failed := range best.failures {
		why = append(why, failed.why)
	}
	miss := Miss{Device: best.function.id(), Why: strings.Join(why, "; "), More: -1}
	for _, r := range rejected {
		if slices.Equal(r.failedKeys(), best.failedKeys()) {
			miss.More++
		}
	}
	return miss, true
}

// countDevice records a rejected device. The nearest miss is the first device, preferably of the resource's
// usual kind.
func (t *tally) countDevice(id, why string, alone, meant bool) {
	t.Count++
	if !alone {
		return
	}
	t.Alone++
	if t.Alone == 1 || meant && !t.meant {
		t.nearest, t.meant = Miss{Device: id, Why: why}, meant
	}
}

// addTallies sorts the counts. The nearest misses belong to the reason that is most often the single one, as
// it is most probably the mistake. Devices named by the selector come first, others last.
func (c *Choice) addTallies(tallies map[string]*tally) {
	var alone []*tally
	for _, key := range reasons {
		t := tallies[key]
		if t == nil {
			continue
		}
		c.Reasons = append(c.Reasons, t.Reason)
		if t.Alone > 0 {
			alone = append(alone, t)
		}
	}
	slices.SortStableFunc(alone, func(a, b *tally) int {
		return cmp.Or(cmp.Compare(rankReason(a.Key), rankReason(b.Key)), cmp.Compare(b.Alone, a.Alone))
	})
	for _, t := range alone {
		t.nearest.More = t.Alone - 1
		c.Nearest = append(c.Nearest, t.nearest)
	}
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
func (m Miss) String() string {
	more := ""
	if m.More > 0 {
		more = fmt.Sprintf(" (and %d more)", m.More)
	}
	return m.Device + ": " + m.Why + more
}
