// SPDX-License-Identifier: Apache-2.0

package amd

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
)

// perResource counts devices by resource name.
func perResource(t *testing.T, machine string, naming Naming) map[string]int {
	t.Helper()
	sys := machines.Sys(t, machine, 1)
	counts := map[string]int{}
	for resource, devices := range discover(t, sys, naming).Resources {
		counts[resource] = len(devices)
	}
	return counts
}

func TestRecordedMachines(t *testing.T) {
	for _, c := range []struct {
		machine string
		single  map[string]int
		mixed   map[string]int
		links   int // pairs of neighbouring cards
	}{
		{"amd-mi250-16gcd-8nic", map[string]int{"amd.com/gpu": 16}, map[string]int{"amd.com/gpu": 16}, 28},
		{"amd-mi300x-cpx-kfd", map[string]int{"amd.com/gpu": 63}, map[string]int{"amd.com/cpx_nps1": 63}, 28},
		{"amd-mi300x-smc-thor2", map[string]int{"amd.com/gpu": 8}, map[string]int{"amd.com/spx_nps1": 8}, 28},
		{"amd-mi300x-smc-thor2-cpx-derived", map[string]int{"amd.com/gpu": 63},
			map[string]int{"amd.com/cpx_nps1": 63}, 28},
		{"oci-mi300x-derived", map[string]int{"amd.com/gpu": 8}, map[string]int{"amd.com/spx_nps1": 8}, 28},
	} {
		t.Run(c.machine, func(t *testing.T) {
			if diff := cmp.Diff(c.single, perResource(t, c.machine, Single)); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(c.mixed, perResource(t, c.machine, Mixed)); diff != "" {
				t.Error(diff)
			}
			inspect(t, c.machine, c.links)
		})
	}
}

// inspect checks every device and link of a machine against its PCI tree.
func inspect(t *testing.T, machine string, links int) {
	sys, tree := machines.Read(t, machine, 1)
	inventory := discover(t, sys, Single)
	if len(inventory.Notes) > 0 {
		t.Errorf("notes %q", inventory.Notes)
	}
	used := map[string]string{}
	for _, d := range inventory.Resources[whole] {
		card, ok := tree.Device(d.Card)
		if !ok || !card.Class.IsGPU() || card.NUMA != d.NUMA || !d.Healthy || len(d.Nodes) != 2 {
			t.Errorf("%+v on %+v", d, card)
		}
		for _, node := range d.Nodes {
			if other := used[node]; other != "" {
				t.Errorf("%s is of %s and of %s", node, other, d.ID)
			}
			used[node] = d.ID
		}
	}
	found, err := ReadLinks(sys)
	if err != nil {
		t.Fatal(err)
	}
	neighbours := 0
	for _, l := range found {
		if l.Hops == 1 {
			neighbours++
		}
		a, b := tree.Distance(l.A, l.A).Level, tree.Distance(l.B, l.B).Level
		if a != topology.PIX || b != topology.PIX || l.A.Compare(l.B) >= 0 || l.Hops < 1 || l.Count < 1 {
			t.Errorf("link %+v", l)
		}
	}
	if neighbours != links {
		t.Errorf("%d of %d links are of one hop, want %d", neighbours, len(found), links)
	}
}

func TestLinksOfMI250(t *testing.T) {
	links, err := ReadLinks(machines.Sys(t, "amd-mi250-16gcd-8nic", 1))
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, l := range links {
		count[l.A.String()+" "+l.B.String()] = l.Count
	}
	for pair, want := range map[string]int{
		"0000:0e:00.0 0000:11:00.0": 4, "0000:0e:00.0 0000:4e:00.0": 2, "0000:0e:00.0 0000:8f:00.0": 1,
	} {
		if count[pair] != want {
			t.Errorf("%s: %d links, want %d", pair, count[pair], want)
		}
	}
}

// TestReadOrder: ROCm's order has the render node of each device once.
func TestReadOrder(t *testing.T) {
	for _, machine := range []string{
		"amd-mi250-16gcd-8nic", "amd-mi300x-smc-thor2-cpx-derived", "oci-mi300x-derived",
	} {
		sys := machines.Sys(t, machine, 0)
		order, err := ReadOrder(sys)
		if err != nil {
			t.Fatal(err)
		}
		var nodes []string
		for _, devices := range discover(t, sys, Mixed).Resources {
			for _, d := range devices {
				nodes = append(nodes, d.Nodes[slices.IndexFunc(d.Nodes, isRender)])
			}
		}
		if diff := cmp.Diff(slices.Sorted(slices.Values(nodes)), slices.Sorted(slices.Values(order))); diff != "" {
			t.Errorf("%s: %s", machine, diff)
		}
	}
}

func isRender(node string) bool { return strings.HasPrefix(node, renderNode) }
