// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Choice is what one selector of a resource made of the devices that may be meant by it: see bench.likely.
// Those that an earlier selector of the same resource took are left out.
type Choice struct {
	Resource string // its full name
	Selector int    // its place in the resource, from 1
	Of       int    // selectors of the resource
	Selected int
	Rejected int
	Reasons  []Reason // in the order in which conditions are looked at
	Nearest  []Miss   // the devices that failed a single condition, one for each, the most telling first
}

// Reason is a condition that devices do not meet.
type Reason struct {
	Key   string // of the selector, or one of the words that reasons have which are not of its making
	Count int    // of devices
	Alone int    // of those, that fail nothing else
}

// Miss is a device that was rejected for one reason alone.
type Miss struct {
	Device string // ID, of a shared HCA its address
	Why    string // "pfNames: want ens1#0-3, it has ens1#4"
	More   int    // devices that were rejected for the same reason alone
}

// Explain says what became of the machine's devices in the resources of a configuration, selector by
// selector, in their order. Its errors are those of Find.
func (f Finder) Explain(c *Config) ([]Choice, error) {
	s, err := f.survey(c)
	if err != nil {
		return nil, err
	}
	owners := map[string]string{} // resources of devices that are taken
	var choices []Choice
	all := slices.Concat(s.candidates, s.unbound())
	for i := range c.Resources {
		r := &c.Resources[i]
		for k := range r.Selectors {
			b := bench{resource: r, name: s.names[i], selector: &r.Selectors[k], needed: s.needed, owners: owners}
			choice := b.judge(all)
			choice.Selector, choice.Of = k+1, len(r.Selectors)
			choices = append(choices, choice)
		}
	}
	return choices, nil
}

// unbound are the functions without a driver, which are no candidates: of VFs that is a common mistake.
func (s *survey) unbound() (list []*function) {
	for d := range s.machine.tree.Devices() {
		if d.Driver == "" {
			list = append(list, &function{Device: d, machine: s.machine})
		}
	}
	return list
}

// tally counts devices that were rejected for one reason.
type tally struct {
	Reason
	nearest Miss
	meant   bool // it is of the kind that the resource mostly has
}

func (b *bench) judge(all []*function) Choice {
	choice := Choice{Resource: b.name}
	tallies := map[string]*tally{}
	for _, f := range all {
		failures := b.failures(f)
		switch {
		case !b.offered(f) || !b.likely(f, failures):
		case len(failures) == 0:
			choice.Selected++
			b.take(f)
		default:
			choice.Rejected++
			for _, failed := range failures {
				if tallies[failed.key] == nil {
					tallies[failed.key] = &tally{Reason: Reason{Key: failed.key}}
				}
				tallies[failed.key].count(f.id(), failed.why, len(failures) == 1, b.mostly(f))
			}
		}
	}
	choice.conclude(tallies)
	return choice
}

// count takes the first device for the nearest miss, of those that the resource mostly has if there is one.
func (t *tally) count(id, why string, alone, meant bool) {
	t.Count++
	if !alone {
		return
	}
	t.Alone++
	if t.Alone == 1 || meant && !t.meant {
		t.nearest, t.meant = Miss{Device: id, Why: why}, meant
	}
}

// conclude sorts what was counted. The nearest misses are those of the reason that most devices have alone:
// where so many would be there but for one condition, that is most probably the mistake. What the selector
// names and does not get comes first, what it does not name last.
func (c *Choice) conclude(tallies map[string]*tally) {
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
		return cmp.Or(cmp.Compare(rank(a.Key), rank(b.Key)), cmp.Compare(b.Alone, a.Alone))
	})
	for _, t := range alone {
		t.nearest.More = t.Alone - 1
		c.Nearest = append(c.Nearest, t.nearest)
	}
}

// rank is how much a reason tells about a device that fails nothing else; 0 is most.
func rank(key string) int {
	switch {
	case key == reasonTaken:
		return 1
	case slices.Contains(byName, key):
		return 2
	default:
		return 0
	}
}

// Summary says who rejected how many: "vendors 8 (5 alone), isRdma 3"; "" where nobody did.
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

// String is for people: the device and what it failed.
func (m Miss) String() string {
	more := ""
	if m.More > 0 {
		more = fmt.Sprintf(" (and %d more)", m.More)
	}
	return m.Device + ": " + m.Why + more
}
