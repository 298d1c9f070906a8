// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/coordination/api"
)

// Decision is one question of the kubelet and what came of it.
type Decision struct {
	Time      time.Time `json:"time"`
	Container string    `json:"container"` // namespace/pod/container
	PodUID    string    `json:"podUID,omitempty"`
	Resource  string    `json:"resource"`
	// false: the kubelet had no choice, or was answered without the coordinator
	Asked       bool                `json:"asked"`
	Size        uint32              `json:"size"`
	Available   uint32              `json:"available"`
	MustInclude []string            `json:"mustInclude,omitempty"`
	Known       string              `json:"known,omitempty"`   // who asks, and what told it
	Chosen      []string            `json:"chosen,omitempty"`  // the answer
	Planned     map[string][]string `json:"planned,omitempty"` // by resource, for the rest of the request
	Pairs       []machine.Pair      `json:"pairs,omitempty"`
	Reason      string              `json:"reason,omitempty"`
	Switches    []switchState       `json:"switches,omitempty"`
	Took        time.Duration       `json:"tookNanoseconds,omitempty"`
	// in the order in which the container lists them
	Allocated   []string   `json:"allocated,omitempty"`
	AllocatedAt *time.Time `json:"allocatedAt,omitempty"`
	Refusal     string     `json:"refusal,omitempty"`
	Held        bool       `json:"held,omitempty"`       // the container has the devices still
	EarlierPod  bool       `json:"earlierPod,omitempty"` // of a deleted pod of the same name
}

// switchState is a switch at the time of a decision.
type switchState struct {
	Name      string `json:"name"`
	FreeGPUs  uint32 `json:"freeGPUs"` // offered to the container: a free one of another NUMA node is not
	FreeVFs   uint32 `json:"freeVFs"`
	TakenGPUs uint32 `json:"takenGPUs"`
	TakenVFs  uint32 `json:"takenVFs"`
	Alone     string `json:"alone,omitempty"` // what this switch alone would have given
}

func newDecisions(answer *api.ExplainResponse) []Decision {
	decisions := []Decision{}
	for _, m := range answer.GetDecisions() {
		d := Decision{
			Time: time.Unix(0, m.GetTimeUnixNano()), Container: formatOwner(m.GetContainer()), PodUID: m.GetPodUid(),
			Resource: m.GetResource(),
			Asked:    m.GetAsked(), Size: m.GetSize(), Available: m.GetAvailable(), MustInclude: m.GetMustInclude(),
			Known: m.GetKnown(), Chosen: m.GetChosen(), Reason: m.GetReason(), Took: time.Duration(m.GetTookNano()),
			Allocated: m.GetAllocated(), Refusal: m.GetRefusal(), Held: m.GetHeld(),
		}
		for name, ids := range m.GetPlanned() {
			if d.Planned == nil {
				d.Planned = map[string][]string{}
			}
			d.Planned[name] = ids.GetIds()
		}
		for _, p := range m.GetPairs() {
			pair := machine.Pair{GPU: p.GetGpu(), VF: p.GetVf()}
			_ = pair.Distance.UnmarshalText([]byte(p.GetDistance())) // UNK instead of an error
			d.Pairs = append(d.Pairs, pair)
		}
		for _, o := range m.GetOptions() {
			d.Switches = append(d.Switches, switchState{
				o.GetSwitch(), o.GetFreeGpus(), o.GetFreeVfs(), o.GetTakenGpus(), o.GetTakenVfs(), o.GetResult(),
			})
		}
		if at := m.GetAllocatedUnixNano(); at != 0 {
			allocated := time.Unix(0, at)
			d.AllocatedAt = &allocated
		}
		decisions = append(decisions, d)
	}
	return decisions
}

// isOfClaim reports whether the scheduler made the decision, for a ResourceClaim.
func (d Decision) isOfClaim() bool { return !d.Asked && d.Known != "" }

// explainDecisions is for people: first the verdict on each container of the present pod, with the reasons
// and the next step if its pairs are or would be apart, by the present status (nil if unknown). Then the
// decisions in the order of the kubelet's calls. Decisions of earlier pods of the name come last, if all are
// asked for.
func explainDecisions(decisions []Decision, now *Status, all bool) *cli.Text {
	var out cli.Text
	present, earlier := splitEarlier(decisions)
	for _, container := range containersOf(present) {
		if now == nil || !now.writeReasons(&out, container, present) {
			out.Line(container, ": ", verdictOf(container, present))
		}
	}
	for i, d := range present {
		d.printTo(&out, i+1)
	}
	switch {
	case len(earlier) == 0:
	case all:
		fmt.Fprintf(&out, "\nEARLIER PODS OF THIS NAME, deleted since\n")
		for i, d := range earlier {
			d.printTo(&out, i+1)
		}
	case len(present) == 0:
		fmt.Fprintf(&out, "no decision for a present pod of this name; --all shows %s for deleted pods\n",
			cli.Count(len(earlier), "decision"))
	default:
		fmt.Fprintf(&out, "\n%s of earlier pods of this name: --all shows these\n",
			cli.Count(len(earlier), "more decision"))
	}
	return &out
}

// verdictOf returns the result of a container in a few words: of its last decision with a reason.
func verdictOf(container string, decisions []Decision) (verdict cli.Cell) {
	for _, d := range slices.Backward(decisions) {
		if d.Container != container {
			continue
		}
		if verdict == nil || d.Reason != "" {
			verdict = d.describeResult()
		}
		if d.Refusal != "" || d.Reason != "" {
			break
		}
	}
	return verdict
}

// describeResult is what came of a decision, in a few words.
func (d Decision) describeResult() cli.Cell {
	switch {
	case d.Refusal != "":
		return cli.NewCell(cli.Bad.Of("refused"), ": ", d.Refusal)
	case d.AllocatedAt == nil:
		return cli.NewCell("taken by nobody")
	case d.Reason != "":
		return machine.MarkDistances(d.Reason)
	default:
		return cli.NewCell("the kubelet had no choice")
	}
}

func (d Decision) printTo(out *cli.Text, number int) {
	fmt.Fprintf(out, "\n%d. %s %s of %s\n", number, d.Time.Format(time.RFC3339Nano), d.Resource, d.Container)
	line := func(name, value string) {
		if value != "" {
			out.Row("   "+name, machine.MarkDistances(value))
		}
	}
	if d.Asked {
		line("asked",
			fmt.Sprintf("%d of %d offered, answered after %s", d.Size, d.Available, d.Took.Round(time.Microsecond)))
		line("must include", strings.Join(d.MustInclude, " "))
		line("who asked", d.Known)
		line("chosen", strings.Join(d.Chosen, " "))
		for _, name := range slices.Sorted(maps.Keys(d.Planned)) {
			line("planned", name+" "+strings.Join(d.Planned[name], " "))
		}
		line("result", d.Reason)
	} else if d.isOfClaim() {
		line("claim", d.Known)
		line("result", d.Reason)
	} else {
		line("not asked", "the kubelet had no choice, or was answered without the coordinator")
	}
	switch {
	case d.Refusal != "":
		out.Row(cli.NewCell("   ", cli.Bad.Of("refused")), d.Refusal)
	case d.AllocatedAt != nil:
		line("allocated", strings.Join(d.Allocated, " "))
	default:
		line("allocated", "nothing: the kubelet went on without it")
	}
	d.printChoices(out)
}

func (d Decision) printChoices(out *cli.Text) {
	if len(d.Pairs) > 0 {
		out.Line()
		out.Row("   GPU", "VF", "DISTANCE")
	}
	for _, p := range d.Pairs {
		out.Row("   "+p.GPU, p.VF, machine.MarkDistances(p.Distance.String()))
	}
	if len(d.Switches) > 0 {
		out.Line()
		out.Row("   SWITCH", "GPUS TAKEN/OFFERED", "VFS TAKEN/OFFERED", "ON THIS SWITCH ALONE")
	}
	for _, s := range d.Switches {
		gpus, vfs := formatShare(int(s.TakenGPUs), int(s.FreeGPUs)), formatShare(int(s.TakenVFs), int(s.FreeVFs))
		out.Row("   "+s.Name, gpus, vfs,
			machine.MarkDistances(cmp.Or(s.Alone, "too few: "+d.offeredOn(s))))
	}
}

// offeredOn returns the devices that were offered on a switch, of the kinds that the container requests.
func (d Decision) offeredOn(s switchState) string {
	var parts []string
	gpus, vfs := cli.Count(int(s.FreeGPUs), "GPU"), cli.Count(int(s.FreeVFs), "VF")
	if slices.ContainsFunc(d.Switches, func(s switchState) bool { return s.TakenGPUs > 0 }) {
		parts = append(parts, gpus)
	}
	if slices.ContainsFunc(d.Switches, func(s switchState) bool { return s.TakenVFs > 0 }) {
		parts = append(parts, vfs)
	}
	if len(parts) == 0 {
		parts = []string{gpus, vfs}
	}
	return strings.Join(parts, " and ") + " offered"
}

// listDecisions is for people: a line for each decision.
func listDecisions(decisions []Decision) *cli.Text {
	var out cli.Text
	if len(decisions) == 0 {
		out.Line("no decision is known: the kubelet has not asked yet")
		return &out
	}
	out.Row("TIME", "CONTAINER", "RESOURCE", "DEVICES", "RESULT")
	for _, d := range decisions {
		out.Row(d.Time.Format(time.RFC3339), cmp.Or(d.Container, "?"), d.Resource, d.Size, d.describeResult())
	}
	return &out
}

// presentPod identifies the pod that has a name now.
type presentPod struct {
	UID     string    // "" if unknown
	Created time.Time // zero if unknown
}

// markEarlier marks the decisions of deleted pods whose name a later pod has. Decisions that name the UIDs of
// their pods are judged by the UIDs. Otherwise devices that are held still are the present pod's; other
// decisions before the creation of the present pod are of a deleted pod; and a container gets each resource
// once, so that a repeated allocation, or a decision after a refusal, is a later pod's.
func markEarlier(decisions []Decision, present presentPod) {
	pods := map[string]*decidedPod{}
	for i, d := range decisions {
		if d.isOfClaim() { // the DRA driver has only present claims
			continue
		}
		if p := pods[podOf(d.Container)]; p == nil || p.isBefore(d) {
			pods[podOf(d.Container)] = &decidedPod{begin: i, allocated: map[half]bool{}}
		}
		pods[podOf(d.Container)].addDecision(d)
	}
	for i, d := range decisions {
		p := pods[podOf(d.Container)]
		earlier := p != nil && i < p.begin || d.isBefore(present.Created) && !d.Held
		if present.UID != "" && d.PodUID != "" {
			earlier = d.PodUID != present.UID
		}
		decisions[i].EarlierPod = earlier
	}
}

// decidedPod is the latest pod of a name among decisions.
type decidedPod struct {
	begin     int    // index of its first decision
	uid       string // "" if unknown
	allocated map[half]bool
	refused   bool
}

// half is a resource of a container.
type half struct{ container, resource string }

// isBefore reports whether a decision for the name is for a later pod.
func (p *decidedPod) isBefore(d Decision) bool {
	if p.uid != "" && d.PodUID != "" {
		return p.uid != d.PodUID
	}
	return p.allocated[half{d.Container, d.Resource}] || p.refused
}

// addDecision adds a decision for the pod.
func (p *decidedPod) addDecision(d Decision) {
	p.uid = cmp.Or(p.uid, d.PodUID)
	p.allocated[half{d.Container, d.Resource}] = d.AllocatedAt != nil
	p.refused = d.Refusal != ""
}

// skew is the largest expected difference between the clocks of a node and of the API server.
const skew = 30 * time.Second

// isBefore reports whether a decision is known to be older than a pod.
func (d Decision) isBefore(created time.Time) bool {
	return !created.IsZero() && !d.isOfClaim() && d.Time.Before(created.Add(-skew))
}

// splitEarlier returns the decisions of the present pod and those of earlier pods.
func splitEarlier(decisions []Decision) (present, earlier []Decision) {
	for _, d := range decisions {
		if d.EarlierPod {
			earlier = append(earlier, d)
		} else {
			present = append(present, d)
		}
	}
	return present, earlier
}
