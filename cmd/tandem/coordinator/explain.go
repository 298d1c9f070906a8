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

// Explanation is for people: first the verdict on each container of the present pod, with the reasons and the
// next step if its pairs are or would be apart, by the present status (nil if unknown). Then the decisions in
// the order of the kubelet's calls. Decisions of earlier pods of the name come last, if all are asked for.
func Explanation(decisions []Decision, now *Status, all bool) []byte {
	var out bytes.Buffer
	present, earlier := split(decisions)
	for _, container := range containersOf(present) {
		if now == nil || !now.reasons(&out, container, present) {
			fmt.Fprintf(&out, "%s: %s\n", container, verdictOf(container, present))
		}
	}
	for i, d := range present {
		d.print(&out, i+1)
	}
	switch {
	case len(earlier) == 0:
	case all:
		fmt.Fprintf(&out, "\nEARLIER PODS OF THIS NAME, deleted since\n")
		for i, d := range earlier {
			d.print(&out, i+1)
		}
	case len(present) == 0:
		fmt.Fprintf(&out, "no decision for a present pod of this name; --all shows %s for deleted pods\n",
			Several(len(earlier), "decision"))
	default:
		fmt.Fprintf(&out, "\n%s of earlier pods of this name: --all shows these\n",
			Several(len(earlier), "more decision"))
	}
	return out.Bytes()
}

func (d Decision) print(out *bytes.Buffer, number int) {
	fmt.Fprintf(out, "\n%d. %s %s of %s\n", number, d.Time.Format(time.RFC3339Nano), d.Resource, d.Container)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	d.facts(w)
	w.Flush() // into memory
	d.choices(out)
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
	} else if d.isOfClaim() {
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
		fmt.Fprintln(w, "\n   SWITCH\tGPUS TAKEN/FREE\tVFS TAKEN/FREE\tON THIS SWITCH ALONE")
	}
	for _, s := range d.Switches {
		alone := s.Alone
		if alone == "" {
			alone = "too few: " + d.freeOn(s)
		}
		fmt.Fprintf(w, "   %s\t%d/%d\t%d/%d\t%s\n", s.Name, s.TakenGPUs, s.FreeGPUs, s.TakenVFs, s.FreeVFs, alone)
	}
	w.Flush() // into memory
}

// freeOn returns the free devices on a switch, of the kinds that the container requests.
func (d Decision) freeOn(s SwitchState) string {
	var parts []string
	gpus, vfs := Several(int(s.FreeGPUs), "GPU"), Several(int(s.FreeVFs), "VF")
	if slices.ContainsFunc(d.Switches, func(s SwitchState) bool { return s.TakenGPUs > 0 }) {
		parts = append(parts, gpus)
	}
	if slices.ContainsFunc(d.Switches, func(s SwitchState) bool { return s.TakenVFs > 0 }) {
		parts = append(parts, vfs)
	}
	if len(parts) == 0 {
		parts = []string{gpus, vfs}
	}
	return strings.Join(parts, " and ") + " free"
}
