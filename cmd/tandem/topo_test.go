// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/test/golden"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
)

func TestTopoTable(t *testing.T) {
	t.Parallel()
	for _, machine := range []string{
		"oci-mi300x-derived",               // the usual shape
		"amd-mi250-16gcd-8nic",             // 16 GPUs, XGMI over several hops
		"amd-mi300x-smc-thor2-cpx-derived", // partitions, a NIC far from every GPU
		"nv-h100-aws-p5",                   // 32 NICs
		"nv-a100pcie-cx6dx-vf-partial",     // VFs, no NUMA nodes
		"amd-mi300x-cpx-kfd",               // no NIC
	} {
		golden.Check(t, "testdata/topo-"+machine+".txt", succeed(t, "topo", "--machine", recorded(machine)))
	}
	golden.Check(t, "testdata/topo-all-nv-4xrtx6000ada-2cx7.txt",
		succeed(t, "topo", "--all", "--machine", recorded("nv-4xrtx6000ada-2cx7")))
}

func TestTopoJSON(t *testing.T) {
	t.Parallel()
	golden.Check(t, "testdata/topo-nv-a100pcie-cx6dx-vf-partial.json",
		succeed(t, "topo", "-o", "json", "--machine", recorded("nv-a100pcie-cx6dx-vf-partial")))
	golden.Check(t, "testdata/topo-oci-mi300x-derived.json",
		succeed(t, "topo", "-o", "json", "--machine", recorded("oci-mi300x-derived")))
}

// The picture has every device under the name in the matrix; package picture tests the drawing.
func TestTopoPicture(t *testing.T) {
	t.Parallel()
	drawn := succeed(t, "topo", "-o", "svg", "--machine", recorded("nv-a100pcie-cx6dx-vf-partial"))
	for _, want := range []string{"<svg ", ">GPU0<", ">NIC0<", "0000:9a:00.2"} {
		if !strings.Contains(drawn, want) {
			t.Errorf("no %q", want)
		}
	}
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

// TestTopoOfFolder: a folder laid out from a machine says the same as the machine's file.
func TestTopoOfFolder(t *testing.T) {
	t.Parallel()
	const machine = "amd-mi300x-smc-thor2"
	m, err := machines.Load(machine, 0)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, m.FS()); err != nil {
		t.Fatal(err)
	}
	want := succeed(t, "topo", "--machine", recorded(machine))
	if diff := cmp.Diff(want, succeed(t, "topo", "--sysfs-root", dir)); diff != "" {
		t.Errorf("(-file +folder):\n%s", diff)
	}
}

// TestTopoWithoutKFD: the matrix needs no KFD, and faults of KFD are notes.
func TestTopoWithoutKFD(t *testing.T) {
	t.Parallel()
	m, err := machines.Load("oci-mi300x-derived", 0)
	if err != nil {
		t.Fatal(err)
	}
	b := m.Build()
	b.Replace("devices/virtual/kfd/kfd/topology/nodes/3/properties", "simd_count many\n")
	broken, err := b.Machine()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, broken.FS()); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := run("topo", "--sysfs-root", dir)
	if code != cli.ExitOK || stdout == "" || stderr == "" {
		t.Errorf("exit code %d, %d bytes of output, standard error %q", code, len(stdout), stderr)
	}
	var got machine.Matrix
	_, text, _ := run("topo", "-o", "json", "--sysfs-root", dir)
	if err := json.Unmarshal([]byte(text), &got); err != nil || len(got.GPUs) != 8 || len(got.Links) != 0 {
		t.Errorf("%d GPUs, %d links, %v; want 8 and none", len(got.GPUs), len(got.Links), err)
	}
}
