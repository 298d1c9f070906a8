// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/tandem-k8s/tandem/cmd/tandem/document"
	"github.com/tandem-k8s/tandem/coordination/api"
)

// Decisions are those that are known, as -o json prints them: in the order in which the kubelet came.
type Decisions struct {
	Version   document.V1 `json:"version"`
	Decisions []Decision  `json:"decisions"`
}

// Decision is one question of the kubelet and what came of it.
type Decision struct {
	Time      time.Time `json:"time"`
	Container string    `json:"container"` // namespace/pod/container
	Resource  string    `json:"resource"`
	// false: the kubelet had no choice, or was answered without the coordinator
	Asked       bool                `json:"asked"`
	Size        uint32              `json:"size"`
	Available   uint32              `json:"available"`
	MustInclude []string            `json:"mustInclude,omitempty"`
	Known       string              `json:"known,omitempty"`   // who asks, and what told it
	Chosen      []string            `json:"chosen,omitempty"`  // the answer
	Planned     map[string][]string `json:"planned,omitempty"` // by resource, for the rest of the request
	Pairs       []Pair              `json:"pairs,omitempty"`
	Reason      string              `json:"reason,omitempty"`
	Switches    []Switch            `json:"switches,omitempty"`
	Took        time.Duration       `json:"tookNanoseconds,omitempty"`
	// in the order in which the container lists them
	Allocated   []string   `json:"allocated,omitempty"`
	AllocatedAt *time.Time `json:"allocatedAt,omitempty"`
	Refusal     string     `json:"refusal,omitempty"`
}

// Pair is a GPU and the VF that serves it.
type Pair struct {
	GPU      string `json:"gpu"`
	VF       string `json:"vf"`
	Distance string `json:"distance"`
}

// Switch is what a switch had at the time of a decision.
type Switch struct {
	Name      string `json:"name"`
	FreeGPUs  uint32 `json:"freeGPUs"`
	FreeVFs   uint32 `json:"freeVFs"`
	TakenGPUs uint32 `json:"takenGPUs"`
	TakenVFs  uint32 `json:"takenVFs"`
	Alone     string `json:"alone,omitempty"` // what this switch alone would have given
}

func newDecisions(answer *api.ExplainResponse) []Decision {
	decisions := []Decision{}
	for _, m := range answer.GetDecisions() {
		d := Decision{
			Time: time.Unix(0, m.GetTimeUnixNano()), Container: ownerText(m.GetContainer()), Resource: m.GetResource(),
			Asked: m.GetAsked(), Size: m.GetSize(), Available: m.GetAvailable(), MustInclude: m.GetMustInclude(),
			Known: m.GetKnown(), Chosen: m.GetChosen(), Reason: m.GetReason(), Took: time.Duration(m.GetTookNano()),
			Allocated: m.GetAllocated(), Refusal: m.GetRefusal(),
		}
		for name, ids := range m.GetPlanned() {
			if d.Planned == nil {
				d.Planned = map[string][]string{}
			}
			d.Planned[name] = ids.GetIds()
		}
		for _, p := range m.GetPairs() {
			d.Pairs = append(d.Pairs, Pair{p.GetGpu(), p.GetVf(), p.GetDistance()})
		}
		for _, o := range m.GetOptions() {
			d.Switches = append(d.Switches,
				Switch{o.GetSwitch(), o.GetFreeGpus(), o.GetFreeVfs(), o.GetTakenGpus(), o.GetTakenVfs(), o.GetResult()})
		}
		if at := m.GetAllocatedUnixNano(); at != 0 {
			allocated := time.Unix(0, at)
			d.AllocatedAt = &allocated
		}
		decisions = append(decisions, d)
	}
	return decisions
}

// List is for people: a line for each decision.
func List(decisions []Decision) []byte {
	if len(decisions) == 0 {
		return []byte("no decision is known: the kubelet has not asked yet\n")
	}
	var out bytes.Buffer
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TIME\tCONTAINER\tRESOURCE\tDEVICES\tRESULT")
	for _, d := range decisions {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\n", d.Time.Format(time.RFC3339), cmp.Or(d.Container, "?"), d.Resource,
			d.Size, d.result())
	}
	w.Flush() // into memory
	return out.Bytes()
}

// result is what came of a decision, in a few words.
func (d Decision) result() string {
	switch {
	case d.Refusal != "":
		return "refused: " + d.Refusal
	case d.AllocatedAt == nil:
		return "taken by nobody"
	case d.Reason != "":
		return d.Reason
	default:
		return "the kubelet had no choice"
	}
}

// Explanation is for people: the decisions one after the other, in the order in which the kubelet came. Then,
// of each container whose pairs are or would be apart, what stands in the way now, nil where nobody tells,
// and what to do.
func Explanation(decisions []Decision, now *Status) []byte {
	var out bytes.Buffer
	for i, d := range decisions {
		if i > 0 {
			fmt.Fprintln(&out)
		}
		fmt.Fprintf(&out, "%d. %s %s of %s\n", i+1, d.Time.Format(time.RFC3339Nano), d.Resource, d.Container)
		w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
		d.facts(w)
		w.Flush() // into memory
		d.choices(&out)
	}
	if now != nil {
		for _, container := range containersOf(decisions) {
			now.reasons(&out, container, decisions)
		}
	}
	return out.Bytes()
}

func (d Decision) facts(w *tabwriter.Writer) {
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "   %s\t%s\n", name, value)
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
	} else if d.Known != "" { // by the scheduler
		line("claim", d.Known)
		line("result", d.Reason)
	} else {
		line("not asked", "the kubelet had no choice, or was answered without the coordinator")
	}
	switch {
	case d.Refusal != "":
		line("refused", d.Refusal)
	case d.AllocatedAt != nil:
		line("allocated", strings.Join(d.Allocated, " "))
	default:
		line("allocated", "nothing: the kubelet went on without it")
	}
}

func (d Decision) choices(out *bytes.Buffer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if len(d.Pairs) > 0 {
		fmt.Fprintln(w, "\n   GPU\tVF\tDISTANCE")
	}
	for _, p := range d.Pairs {
		fmt.Fprintf(w, "   %s\t%s\t%s\n", p.GPU, p.VF, p.Distance)
	}
	w.Flush() // into memory
	if len(d.Switches) > 0 {
		fmt.Fprintln(w, "\n   SWITCH\tGPUS TAKEN/FREE\tVFS TAKEN/FREE\tALONE IT WOULD HAVE GIVEN")
	}
	for _, s := range d.Switches {
		alone := s.Alone
		if alone == "" {
			alone = fmt.Sprintf("too few: %s and %s free", several(int(s.FreeGPUs), "GPU"),
				several(int(s.FreeVFs), "VF"))
		}
		fmt.Fprintf(w, "   %s\t%d/%d\t%d/%d\t%s\n", s.Name, s.TakenGPUs, s.FreeGPUs, s.TakenVFs, s.FreeVFs, alone)
	}
	w.Flush() // into memory
}
