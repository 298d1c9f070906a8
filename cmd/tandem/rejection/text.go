// SPDX-License-Identifier: Apache-2.0

package rejection

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/tandem-k8s/tandem/cmd/internal/printable"
	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
)

// Text returns the rejection for people: the verdict and the next step first.
func (r Rejection) Text() []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, "%s was rejected by the kubelet's Topology Manager on node %s (policy %s, scope %s)\n",
		r.Pod, r.Node, r.Policy, r.Scope)
	fmt.Fprintf(&out, "   why   %s\n   next  %s\n", r.Verdict, r.Next)
	for _, c := range r.Containers {
		fmt.Fprintf(&out, "\n   container %s requests %s\n", c.Name, c.requests())
	}
	if len(r.Resources) > 0 {
		fmt.Fprintln(&out)
		r.table(&out)
	}
	if len(r.Holders) > 0 {
		fmt.Fprintln(&out)
		w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "   HELD BY\tRESOURCE\tNUMA\tDEVICES")
		for _, h := range r.Holders {
			fmt.Fprintf(w, "   %s\t%s\t%s\t%d\n", h.Pod, h.Resource, numaText(h.Node), h.Devices)
		}
		w.Flush() // into memory
	}
	return []byte(printable.Lines(out.String()))
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
