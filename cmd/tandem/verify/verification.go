// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/topology"
)

// Verification has a container's devices and problems, in JSON.
type Verification struct {
	Version   cli.V1         `json:"version"`
	GPUs      []GPU          `json:"gpus"`
	VFs       []VF           `json:"vfs"`
	Pairs     []machine.Pair `json:"pairs"`
	InOrder   bool           `json:"inOrder"`   // as many VFs as GPUs, and the i-th VF pairs with the i-th GPU
	PairsFile string         `json:"pairsFile"` // "agrees", "differs" or "absent"
	Failures  []string       `json:"failures"`
	// pairs whose distance is that of the pairs file: only root reads the vpd files that assign NICs to DMA
	// functions
	Trusted []string       `json:"trusted,omitempty"`
	Traffic *TrafficReport `json:"traffic,omitempty"` // only with --traffic
}

// GPU is a GPU of the container.
type GPU struct {
	ID      string           `json:"id"` // its address; of an AMD partition amdgpu_xcp_<n>
	Address topology.Address `json:"address"`
	UUID    string           `json:"uuid,omitempty"` // NVIDIA only

	runtime runtimeGPU
}

// VF is a VF of the container.
type VF struct {
	Address topology.Address `json:"address"`
	RDMA    []string         `json:"rdma,omitempty"`
	Netdevs []string         `json:"netdevs,omitempty"`
}

func (r *Verification) fail(format string, args ...any) {
	r.Failures = append(r.Failures, fmt.Sprintf(format, args...))
}

// Table returns a table for people.
func (r *Verification) Table() []byte {
	var out bytes.Buffer
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	if len(r.Pairs) > 0 {
		fmt.Fprintln(w, "GPU\tVF\tDISTANCE\tRDMA\tNETDEV")
	}
	for _, p := range r.Pairs {
		vf := r.vf(p.VF)
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", p.GPU, p.VF, p.Distance, cmp.Or(strings.Join(vf.RDMA, ","), "-"),
			cmp.Or(strings.Join(vf.Netdevs, ","), "-"))
	}
	if len(r.Pairs) > 0 {
		fmt.Fprintln(w)
	}
	_ = w.Flush() // to memory
	if r.Traffic != nil {
		r.Traffic.Write(&out)
		fmt.Fprintln(&out)
	}
	verdict, order := "verified", "in the order of the lists"
	if len(r.Failures) > 0 {
		verdict = "not verified"
	}
	if !r.InOrder {
		order = "not " + order
	}
	file := "pairs.json " + r.PairsFile
	if r.PairsFile == "absent" {
		file = "no pairs.json" // no problem: the file is optional
	}
	fmt.Fprintf(&out, "%s: %s, %s, pairs %s, %s\n", verdict, cli.Count(len(r.GPUs), "GPU"),
		cli.Count(len(r.VFs), "VF"), order, file)
	for _, pair := range r.Trusted {
		fmt.Fprintf(&out, "by pairs.json alone, because only root reads keyword V3 of the vpd files: %s\n", pair)
	}
	return out.Bytes()
}

func (r *Verification) vf(address string) VF {
	for _, vf := range r.VFs {
		if vf.Address.String() == address {
			return vf
		}
	}
	return VF{}
}
