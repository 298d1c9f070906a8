package admission

import (
	"fmt"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/asking"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// Observer is told what a plugin's part in the coordination does, for those who count it. The kubelet waits
// meanwhile: its methods return at once.
type Observer interface {
	// the coordinator answered a question; what it knew of the request came from there
	Asked(source intent.Source)
	Planned(resources int)         // it keeps devices of so many resources for the rest of a container
	PlanEnded(outcome PlanOutcome) // what became of those of one resource
	Allocated(Verdict)             // it answered an Allocate
	Alone(call Call)               // a call of the kubelet's was answered without it
}

// Verdict is what the coordinator said of an Allocate.
type Verdict struct {
	Resource  string // "" for one that no plugin has announced
	Outcome   Outcome
	Container *kubelet.Container // nil while it is not known
	PodUID    string             // "" where no source of intent told
	Pairs     []placement.Pair   // those of the container, where this Allocate was its last
	Refusal   string
}

// Outcome is what came of an Allocate.
type Outcome string

// The outcomes.
const (
	Granted       Outcome = "granted"        // the container has no pairs, or not all of its devices yet
	Aligned       Outcome = "aligned"        // it is complete: all its pairs are on one switch each
	Degraded      Outcome = "degraded"       // it is complete, and they are not
	RefusedDouble Outcome = "refused_double" // another pod has a device of it
	// RefusedAlignment: its pairs are required to be on one switch each, and cannot be
	RefusedAlignment Outcome = "refused_alignment"
)

// Outcomes are all that there are.
var Outcomes = []Outcome{Granted, Aligned, Degraded, RefusedDouble, RefusedAlignment}

// PlanOutcome is what became of a plan for one resource.
type PlanOutcome string

// The outcomes of a plan.
const (
	Kept      PlanOutcome = "kept"      // the container was given what was planned
	Overruled PlanOutcome = "overruled" // the kubelet gave others
	Dropped   PlanOutcome = "dropped"   // the container did not want them, or was refused
	Expired   PlanOutcome = "expired"   // nobody came for them
)

// PlanOutcomes are all that there are.
var PlanOutcomes = []PlanOutcome{Kept, Overruled, Dropped, Expired}

// Call is a call of the kubelet's.
type Call string

// The calls that the coordinator answers.
const (
	PreferCall    Call = "prefer"
	AllocatedCall Call = "allocate"
)

// unobserved is an Observer that does nothing.
type unobserved struct{}

func (unobserved) Asked(intent.Source)   {}
func (unobserved) Planned(int)           {}
func (unobserved) PlanEnded(PlanOutcome) {}
func (unobserved) Allocated(Verdict)     {}
func (unobserved) Alone(Call)            {}

// words are the words to an Observer that wait for a commit.
type words []func(Observer)

func (w *words) Asked(source intent.Source) {
	*w = append(*w, func(o Observer) { o.Asked(source) })
}

func (w *words) Planned(resources int) {
	*w = append(*w, func(o Observer) { o.Planned(resources) })
}

func (w *words) PlanEnded(outcome PlanOutcome) {
	*w = append(*w, func(o Observer) { o.PlanEnded(outcome) })
}

func (w *words) Allocated(v Verdict) {
	*w = append(*w, func(o Observer) { o.Allocated(v) })
}

func (w *words) Alone(call Call) {
	*w = append(*w, func(o Observer) { o.Alone(call) })
}

// watcher is who is told.
func (c *Coordinator) watcher() Observer { return OrNobody(c.Observer) }

// OrNobody is an Observer in any case.
func OrNobody(o Observer) Observer {
	if o == nil {
		return unobserved{}
	}
	return o
}

// reportGranted tells of an Allocate that was granted.
func (d *deciding) reportGranted(g grant) {
	v := Verdict{Resource: g.name, Outcome: Granted, Pairs: d.pairsOf(g.container, g.sure())}
	if len(v.Pairs) > 0 {
		v.Outcome = Aligned
		if slices.ContainsFunc(v.Pairs, func(p placement.Pair) bool { return !p.Distance.Level.SameSwitch() }) {
			v.Outcome = Degraded
		}
	}
	d.report(v, g.container)
	if v.Outcome == Degraded {
		d.warn("pairs are not on one switch each", "container", g.named(), "pairs", described(v.Pairs),
			"reason", g.why())
	}
}

// named is who is given the devices, for people.
func (g grant) named() string {
	if c := g.container.Likely(); c != nil {
		return c.String()
	}
	return "not known yet"
}

// described says which GPU has which VF, and how far apart they are: "0000:11:00.0-0000:0c:00.1 PIX".
func described(pairs []placement.Pair) []string {
	var said []string
	for _, p := range pairs {
		said = append(said, fmt.Sprintf("%s-%s %s", p.GPU.ID, p.VF.ID, p.Distance.Level))
	}
	return said
}

// why says why the container has its pairs.
func (g grant) why() string {
	if g.plan == nil || g.plan.choice == nil {
		return "the kubelet had no choice, or chose by itself"
	}
	return g.plan.choice.Reason
}

// report tells of an Allocate to a container, nil for one that is not known.
func (d *deciding) report(v Verdict, c *asking.Container) {
	if d.resources[v.Resource] == nil {
		v.Resource = ""
	}
	if c != nil {
		v.Container = c.Likely()
		if v.Container != nil && c.Asker != nil && c.Asker.Pod == v.Container.Pod {
			v.PodUID = c.Asker.UID
		}
	}
	if d.livePlan() == nil {
		d.endPromise(Dropped)
	}
	d.words.Allocated(v)
}
