// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bytes"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/tandem-k8s/tandem/cmd/tandem/document"
	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
)

// Plan is the answer, in JSON. The i-th GPU and the i-th VF are a pair.
type Plan struct {
	Version document.V1    `json:"version"`
	GPUs    []string       `json:"gpus"` // device IDs
	VFs     []string       `json:"vfs"`
	Pairs   []machine.Pair `json:"pairs"`
	// NUMA nodes that the kubelet would choose; empty if it has no choice
	Nodes []int `json:"nodes"`
	// reasons for which the kubelet would refuse the container, or would admit the container slowly
	Note   string `json:"note,omitempty"`
	Reason string `json:"reason"`

	rejected bool
}

// Rejected reports whether the kubelet would reject the container; the note has the reason.
func (p *Plan) Rejected() bool { return p.rejected }

// Table returns a table for people.
func (p *Plan) Table() []byte {
	var text bytes.Buffer
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	switch {
	case len(p.Pairs) > 0:
		fmt.Fprintln(w, "GPU\tVF\tDISTANCE")
		for _, pair := range p.Pairs {
			fmt.Fprintf(w, "%s\t%s\t%s\n", pair.GPU, pair.VF, pair.Distance)
		}
	case len(p.GPUs) > 0:
		fmt.Fprintf(w, "GPU\n%s\n", strings.Join(p.GPUs, "\n"))
	default:
		fmt.Fprintf(w, "VF\n%s\n", strings.Join(p.VFs, "\n"))
	}
	_ = w.Flush() // to memory
	fmt.Fprintln(&text)
	for _, node := range p.Nodes {
		fmt.Fprintf(&text, "NUMA node %d\n", node)
	}
	if p.Note != "" {
		fmt.Fprintf(&text, "note: %s\n", p.Note)
	}
	fmt.Fprintln(&text, p.Reason)
	return text.Bytes()
}
