// SPDX-License-Identifier: Apache-2.0

package topo

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/topology"
)

// Nearest returns a line for each GPU: its nearest NICs and their distance.
func (m *Matrix) Nearest() []byte {
	var out bytes.Buffer
	if len(m.GPUs) == 0 {
		return []byte("no GPU of " + gpu.Titles() + "\n")
	}
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "GPU\tADDRESS\tNUMA\tDISTANCE\tNEAREST NICS")
	for i, g := range m.GPUs {
		distance, nics := m.nearest(i)
		fmt.Fprintf(w, "GPU%d\t%s\t%s\t%s\t%s\n", i, g.Address, nodeText(g.NUMA), distance,
			cmp.Or(strings.Join(nics, ", "), "-"))
	}
	_ = w.Flush() // to memory
	return out.Bytes()
}

// nearest names the NICs with the least distance to a GPU, in the order of the matrix.
func (m *Matrix) nearest(gpu int) (distance string, names []string) {
	distances := m.Distances[gpu*len(m.NICs) : (gpu+1)*len(m.NICs)]
	var best topology.Distance
	for i, d := range distances {
		one := topology.Distance{Level: d.Distance, Bridges: d.Bridges}
		if i == 0 || one.Compare(best) < 0 {
			best, names = one, nil
		}
		if one == best {
			nic := m.NICs[i]
			name := cmp.Or(nic.RDMA, nic.Netdev)
			names = append(names, strings.TrimSpace(nic.Address.String()+" "+name))
		}
	}
	if len(distances) == 0 {
		return "-", nil
	}
	mayBe := slices.ContainsFunc(distances, func(d Distance) bool { return d.MayBeNearer })
	return Distance{Distance: best.Level, MayBeNearer: mayBe && !best.Level.Direct()}.cell(), names
}
