// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/test/golden"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
)

func TestTopoJSON(t *testing.T) {
	t.Parallel()
	golden.Check(t, "testdata/topo-nv-a100pcie-cx6dx-vf-partial.json",
		succeed(t, "topo", "-o", "json", "--machine", recorded("nv-a100pcie-cx6dx-vf-partial")))
	golden.Check(t, "testdata/topo-oci-mi300x-derived.json",
		succeed(t, "topo", "-o", "json", "--machine", recorded("oci-mi300x-derived")))
}

// TestTopoAgrees compares with the known values of every machine: the nearest RDMA functions of each GPU and
// their distance.
func TestTopoAgrees(t *testing.T) {
	t.Parallel()
	type nearest struct {
		Distance string             `json:"distance"`
		Nearest  []topology.Address `json:"nearest"`
	}
	var expect map[string]map[topology.Address]nearest
	text, err := os.ReadFile("../../test/machines/expect.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &expect); err != nil {
		t.Fatal(err)
	}
	for _, name := range machines.Names() {
		var m machine.Matrix
		if err := json.Unmarshal([]byte(succeed(t, "topo", "-o", "json", "--machine", recorded(name))),
			&m); err != nil {
			t.Fatal(err)
		}
		vfs := map[topology.Address]bool{} // are nearest functions too, but no NICs
		for _, n := range m.NICs {
			for _, vf := range n.VFs {
				vfs[vf] = true
			}
		}
		got := map[topology.Address]nearest{}
		for _, g := range m.GPUs {
			got[g.Address] = nearest{Nearest: []topology.Address{}}
		}
		best := map[topology.Address]topology.Distance{}
		for _, d := range m.Distances {
			distance := topology.Distance{Level: d.Distance, Bridges: d.Bridges}
			known := got[d.GPU]
			if c := distance.Compare(best[d.GPU]); known.Distance == "" || c < 0 {
				best[d.GPU], known = distance, nearest{Distance: distance.Level.String()}
			} else if c > 0 {
				continue
			}
			known.Nearest = append(known.Nearest, d.NIC)
			got[d.GPU] = known
		}
		want := expect[name]
		for gpu, n := range want {
			n.Nearest = slices.DeleteFunc(n.Nearest, func(a topology.Address) bool { return vfs[a] })
			want[gpu] = n
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
