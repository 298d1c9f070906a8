// SPDX-License-Identifier: Apache-2.0

package rejection

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/tandem-k8s/tandem/cmd/internal/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
)

// Text returns the rejection for people: the verdict and the next step first.
func (r Rejection) Text() []byte {
	var out bytes.Buffer
	node := "this node"
	if r.Node != "" {
		node = "node " + r.Node
	}
	fmt.Fprintf(&out, "%s was rejected by the kubelet's Topology Manager on %s (policy %s, scope %s)\n",
		r.Pod, node, r.Policy, r.Scope)
	if r.Assumed != "" {
		fmt.Fprintf(&out, "   policy and scope are assumed: %s\n", r.Assumed)
	}
	fmt.Fprintf(&out, "   why   %s\n", r.Verdict)
	if r.Then != "" {
		fmt.Fprintf(&out, "   then  %s%s\n", r.time(), r.Then)
	}
	fmt.Fprintf(&out, "   next  %s\n", r.Next)
	for _, c := range r.Containers {
		fmt.Fprintf(&out, "\n   container %s requests %s\n", c.Name, c.requests())
	}
	if len(r.Resources) > 0 {
		fmt.Fprintln(&out)
		r.table(&out)
		r.switches(&out)
	}
	if len(r.Holders) > 0 {
		fmt.Fprintln(&out)
		w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "   HELD BY\tRESOURCE\tNUMA\tDEVICES\tSINCE")
		for _, h := range r.Holders {
			fmt.Fprintf(w, "   %s\t%s\t%s\t%d\t%s\n", h.Pod, h.Resource, numaText(h.Node), h.Devices, r.order(h))
		}
		w.Flush() // into memory
	}
	return []byte(cli.PrintableLines(out.String()))
}

func (r Rejection) table(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "   RESOURCE\tREQUESTED\tNUMA\tFREE NOW")
	for _, resource := range r.Resources {
		name, requested := resource.Name, fmt.Sprint(resource.Requested)
		for _, count := range resource.NUMA {
			fmt.Fprintf(w, "   %s\t%s\t%s\t%d/%d\n", name, requested, numaText(count.Node), count.Free, count.All)
			name, requested = "", ""
		}
	}
	w.Flush() // into memory
}

// switches writes the free devices of each switch, a column for each resource.
func (r Rejection) switches(out io.Writer) {
	if len(r.Switches) == 0 {
		return
	}
	free := map[string]map[string]string{} // by switch and resource
	var names []string
	for _, s := range r.Switches {
		if free[s.Name] == nil {
			free[s.Name], names = map[string]string{}, append(names, s.Name)
		}
		free[s.Name][s.Resource] = fmt.Sprintf("%d/%d", s.Free, s.All)
	}
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(first string, cell func(resource string) string) {
		fmt.Fprint(w, "   ", first)
		for _, resource := range r.Resources {
			fmt.Fprint(w, "\t", cell(resource.Name))
		}
		fmt.Fprintln(w)
	}
	line("SWITCH, FREE NOW", func(resource string) string { return resource })
	for _, name := range names {
		line(name, func(resource string) string { return cmp.Or(free[name][resource], "0/0") })
	}
	w.Flush() // into memory
}

// time returns the time of the rejection as the beginning of a sentence, "" if unknown.
func (r Rejection) time() string {
	if r.RejectedAt == nil {
		return ""
	}
	return "at " + r.RejectedAt.Format(time.RFC3339) + " "
}

// requests returns "2 amd.com/gpu, 2 tandem.dev/rdma_vf and 8 exclusive CPUs".
func (c Container) requests() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(c.Requests)) {
		parts = append(parts, fmt.Sprintf("%d %s", c.Requests[name], name))
	}
	if c.CPUs > 0 {
		parts = append(parts, coordinator.Several(c.CPUs, "exclusive CPU"))
	}
	return strings.Join(parts, ", ")
}

func numaText(node *int) string {
	if node == nil {
		return "-"
	}
	return fmt.Sprint(*node)
}
