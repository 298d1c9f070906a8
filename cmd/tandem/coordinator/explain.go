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
)

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
