// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/pair"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/rig"
)

// world is a kind of node on which a campaign is.
type world struct {
	name   string
	source string // of intent, as decisions name it; "" where none tells
	rig.Setup
}

// Where there is one VF for each GPU not every pod that asks for alignment can have it.
var worlds = []world{
	{"PodResources alone", "", rig.Setup{Intent: "podresources", VFsPerPF: 4}},
	{"no source", "", rig.Setup{Intent: "none", VFsPerPF: 4}},
	{"Pods API", "pods-api", rig.Setup{PodsAPI: true, VFsPerPF: 4}},
	{"kubelet's HTTPS server", "kubelet", rig.Setup{Intent: "kubelet,podresources", VFsPerPF: 1}},
	{"watcher", "pods-api", rig.Setup{PodsAPI: true, VFsPerPF: 4, Watcher: true}},
}

// long is a campaign in which every fault has to happen.
const long = 1000 // admissions

// told reports whether a source tells the daemons what pods want.
func (c *chaos) told() bool { return c.world.source != "" }

// isTold reports whether the source told of who asks.
func (c *chaos) isTold(question pair.Line) bool {
	return question.ToldBy(c.world.source)
}

// checkSource makes sure that the source of this world was there: it told of questions.
func (c *chaos) checkSource() {
	c.t.Helper()
	lines, _ := c.Pair.Log.Since(0)
	told := 0
	for _, line := range lines {
		if line.Message == "preferred" && c.isTold(line) {
			told++
		}
	}
	if c.told() && told == 0 {
		c.t.Errorf("%s told of no question", c.world.source)
	}
	c.counts["question told by a source of intent"] = told
}

// deck deals the faults of all campaigns: each once before any comes again.
type deck struct {
	faults   []fault
	dealt    map[string]int
	happened map[string]bool
}

func newDeck(t *testing.T) *deck {
	t.Helper()
	d := &deck{faults: slices.Concat(faults, ill), dealt: map[string]int{}, happened: map[string]bool{}}
	if *onlyFault != "" {
		only := strings.Split(*onlyFault, ";")
		d.faults = slices.DeleteFunc(d.faults, func(f fault) bool { return !slices.Contains(only, f.name) })
	}
	if len(d.faults) == 0 {
		t.Fatalf("there is no fault %q", *onlyFault)
	}
	return d
}

// deal returns one of the faults that have come least often, of those that can come in a campaign; false
// where none can.
func (d *deck) deal(c *chaos) (next fault, ok bool) {
	fitting := slices.DeleteFunc(slices.Clone(d.faults), func(f fault) bool {
		return f.fits != nil && !f.fits(c)
	})
	c.random.Shuffle(len(fitting), func(i, j int) { fitting[i], fitting[j] = fitting[j], fitting[i] })
	if len(fitting) == 0 {
		return fault{}, false
	}
	next = slices.MinFunc(fitting, func(a, b fault) int { return d.dealt[a.name] - d.dealt[b.name] })
	d.dealt[next.name]++
	return next, true
}

// check makes sure that what was dealt has happened. A long campaign has had every fault.
func (d *deck) check(t *testing.T) {
	t.Helper()
	for _, what := range []string{asRequired, refusedAlignment} {
		if !d.happened[what] && *onlyFault == "" && *chaosAdmissions >= long {
			t.Errorf("never in the campaign: %s", what)
		}
	}
	var never []string
	for _, f := range d.faults {
		switch {
		case d.dealt[f.name] == 0 && (f.fits == nil || mountable.Load()) && *chaosAdmissions >= long:
			t.Errorf("the campaign never had the fault %q", f.name)
		case d.dealt[f.name] == 0:
			never = append(never, f.name)
		case !d.happened[f.name]:
			t.Errorf("%q was begun %d times and never happened", f.name, d.dealt[f.name])
		}
	}
	if len(never) > 0 {
		t.Logf("%d admissions without %s", *chaosAdmissions, strings.Join(never, ", "))
	}
}
