// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"io/fs"
	"path"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/topology"
)

func address(s string) topology.Address {
	a, err := topology.ParseAddress(s)
	if err != nil {
		panic(err)
	}
	return a
}

func TestVFAddresses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		about, machine string
		perPF          int
		pf             string
		want           []string
	}{
		{"one port: beside the PF", "oci-mi300x-derived", 2, "0000:0c:00.0",
			[]string{"0000:0c:00.1", "0000:0c:00.2"}},
		{"first of two ports: after both", "amd-mi300x-smc-thor2", 2, "0000:30:00.0",
			[]string{"0000:30:00.2", "0000:30:00.3"}},
		{"second port: after all of the first", "amd-mi300x-smc-thor2", 2, "0000:30:00.1",
			[]string{"0000:30:02.2", "0000:30:02.3"}},
		{"a device holds eight functions", "nv-h800-8x8", 8, "0000:0e:00.0", []string{
			"0000:0e:00.1", "0000:0e:00.2", "0000:0e:00.3", "0000:0e:00.4", "0000:0e:00.5", "0000:0e:00.6",
			"0000:0e:00.7", "0000:0e:01.0",
		}},
		{"recorded VFs stay as they are", "nv-a100pcie-cx6dx-vf-partial", 5, "0000:9a:00.0",
			[]string{"0000:9a:00.2", "0000:9a:00.3"}},
		{"and no others are added", "nv-a100pcie-cx6dx-vf-partial", 5, "0000:9a:00.1", []string{}},
	}
	for _, test := range tests {
		t.Run(test.about, func(t *testing.T) {
			t.Parallel()
			_, tree := Read(t, test.machine, test.perPF)
			pf, ok := tree.Device(address(test.pf))
			if !ok {
				t.Fatalf("no %s", test.pf)
			}
			got := []string{}
			for _, vf := range pf.VFs {
				got = append(got, vf.String())
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("VFs (-want +got):\n%s", diff)
			}
		})
	}
}

// TestVFs checks what every VF has, on every machine.
func TestVFs(t *testing.T) {
	t.Parallel()
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sys, tree := Read(t, name, 4)
			rdma := map[string]bool{}
			for d := range tree.Devices() {
				if !d.Class.IsNetwork() || len(d.RDMA) == 0 {
					continue
				}
				if rdma[d.RDMA[0]] {
					t.Errorf("%s: %s is there twice", d.Address, d.RDMA[0])
				}
				rdma[d.RDMA[0]] = true
				checkNodes(t, sys, d)
				if d.IsVF() {
					checkVF(t, tree, d)
				}
			}
		})
	}
}

func checkVF(t *testing.T, tree *topology.Tree, vf *topology.Device) {
	t.Helper()
	pf, ok := tree.Device(vf.PF)
	if !ok {
		t.Fatalf("%s: no PF %s", vf.Address, vf.PF)
	}
	if vf.Class != pf.Class || vf.Vendor != pf.Vendor || vf.Driver != pf.Driver || vf.NUMA != pf.NUMA {
		t.Errorf("%s is %+v, its PF is %+v", vf.Address, vf, pf)
	}
	if len(vf.Netdevs) != len(pf.Netdevs) {
		t.Errorf("%s has netdevs %v, its PF %v", vf.Address, vf.Netdevs, pf.Netdevs)
	}
	if d := tree.Distance(vf.Address, pf.Address); d.Level != topology.PIX || d.Bridges != 0 {
		t.Errorf("%s is %v from its PF", vf.Address, d)
	}
}

// checkNodes checks that the character devices of a function are those of its RDMA device, by way of class.
func checkNodes(t *testing.T, sys fs.FS, d *topology.Device) {
	t.Helper()
	dir := "bus/pci/devices/" + d.Address.String()
	for _, class := range []string{"infiniband_verbs", "infiniband_mad"} {
		nodes, err := fs.ReadDir(sys, path.Join(dir, class))
		if err != nil && d.Driver != "efa" {
			t.Errorf("%s: %v", d.Address, err)
		}
		for _, node := range nodes {
			name, err := fs.ReadFile(sys, path.Join("class", class, node.Name(), "ibdev"))
			if err != nil || strings.TrimSpace(string(name)) != d.RDMA[0] {
				t.Errorf("%s: %s is of %q (%v), want %s", d.Address, node.Name(), name, err, d.RDMA[0])
			}
		}
	}
}
