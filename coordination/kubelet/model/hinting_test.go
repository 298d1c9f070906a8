// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/test/model/topologymanager"
	"github.com/tandem-k8s/tandem/test/scale"
	"github.com/tandem-k8s/tandem/topology"
)

// advised are the settings of a kubelet as the documents advise.
var advised = model.Kubelet{
	TopologyManagerPolicy: topologymanager.Restricted, CPUManagerPolicy: "static", MemoryManagerPolicy: "None",
}

// on returns a resource with a number of devices on each NUMA node.
func on(name string, devices ...int) model.Resource {
	r := model.Resource{Name: name}
	for node, n := range devices {
		for range n {
			r.Devices = append(r.Devices, model.Device{NUMA: topology.Node(node), Healthy: true})
		}
	}
	return r
}

// hinting returns the pool "vf" on a node with some NUMA nodes.
func hinting(nodes int, vfs model.Resource, gpus ...model.Resource) model.Hinting {
	h := model.Hinting{Kubelet: advised, GPUs: gpus, Pools: []model.Pool{{Resource: vfs}}}
	for n := range nodes {
		h.Nodes, h.CPUs = append(h.Nodes, n), append(h.CPUs, n)
	}
	return h
}

func TestDecisions(t *testing.T) {
	t.Parallel()
	flat := model.Resource{Name: "vf", Devices: make([]model.Device, 8)} // no NUMA node is known
	eight, ones := make([]int, 8), []int{1, 1, 1, 1, 1, 1, 1, 1}
	nine := append([]int{1}, ones...)
	for i := range eight {
		eight[i] = 8
	}
	single, noManagers, unknown := advised, advised, model.Kubelet{}
	single.TopologyManagerPolicy, noManagers.CPUManagerPolicy = topologymanager.SingleNUMANode, "none"
	for name, c := range map[string]struct {
		h    model.Hinting
		with model.Kubelet
		want string
	}{
		"a VF for each GPU":  {hinting(2, on("vf", 4, 4), on("gpu", 4, 4)), advised, ""},
		"two for each GPU":   {hinting(2, on("vf", 8, 8), on("gpu", 4, 4)), advised, "reject 5 gpu with 5 VFs"},
		"fewer VFs":          {hinting(2, on("vf", 2, 2), on("gpu", 4, 4)), advised, "reject 3 gpu with 3 VFs"},
		"a pool for a rail":  {hinting(2, on("vf", 4), on("gpu", 4, 4)), advised, "reject 5 gpu with 4 VFs"},
		"no node is known":   {hinting(2, flat, on("gpu", 4, 4)), advised, ""},
		"no GPUs":            {hinting(2, on("vf", 8, 8)), advised, ""},
		"one NUMA node":      {hinting(1, on("vf", 64), on("gpu", 8)), advised, ""},
		"one of two kinds":   {hinting(2, on("vf", 4, 4), on("mig-1g", 14, 7), on("gpu", 4, 4)), advised, "mig-1g"},
		"replicas":           {hinting(2, on("vf", 400, 400), on("gpu", 400, 400)), advised, ""},
		"unknown settings":   {hinting(2, on("vf", 8, 8), on("gpu", 4, 4)), unknown, "under policy restricted"},
		"one node alone":     {hinting(2, on("vf", 8, 8), on("gpu", 4, 4)), single, ""},
		"one node, few VFs":  {hinting(2, on("vf", 2, 2), on("gpu", 4, 4)), single, "reject 3 gpu with 3 VFs"},
		"eight nodes":        {hinting(8, on("vf", ones...), on("gpu", ones...)), advised, "about 6.4 s to merge"},
		"eight, shared CPUs": {hinting(8, on("vf", ones...), on("gpu", ones...)), noManagers, ""},
		"eight, one node":    {hinting(8, on("vf", ones...), on("gpu", ones...)), single, ""},
		"eight, unknown":     {hinting(8, on("vf", ones...), on("gpu", ones...)), unknown, "to merge the hints"},
		"eight without GPUs": {hinting(8, on("vf", ones...)), advised, ""},
		"eight, many":        {hinting(8, on("vf", eight...), on("gpu", ones...)), noManagers, "reject 2 gpu"},
		"nine nodes":         {hinting(9, on("vf", 8, 8), on("gpu", nine...)), noManagers, "than 8 NUMA nodes"},
	} {
		c.h.Kubelet = c.with
		if got := c.h.Decide()["vf"]; !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// The hints of a pool count for those of the others, unless the pool has none.
func TestPoolsTogether(t *testing.T) {
	t.Parallel()
	h := hinting(4, on("vf", 1, 1, 1, 1), on("gpu", 1, 1, 1, 1))
	second := model.Pool{Resource: on("second", 1, 1, 1, 1)}
	many := model.Pool{Resource: on("x", 4, 4, 4, 4)}
	kept := model.Pool{Resource: second.Resource, Fixed: true}
	for name, c := range map[string]struct {
		pools  []model.Pool
		memory string
		want   bool
	}{
		"alone":                   {h.Pools, "Static", true},
		"beside another":          {append(h.Pools[:1:1], second), "None", true},
		"with hints of memory":    {append(h.Pools[:1:1], second), "Static", false},
		"beside one without":      {append(h.Pools[:1:1], many), "Static", true},
		"beside one that is kept": {append(h.Pools[:1:1], kept), "Static", false},
	} {
		h.Pools, h.Kubelet.MemoryManagerPolicy = c.pools, c.memory
		decided := h.Decide()
		if got := decided["vf"]; (got == "") != c.want {
			t.Errorf("%s: %s", name, got)
		}
		if _, ok := decided["second"]; ok && c.pools[len(c.pools)-1].Fixed {
			t.Errorf("%s: a decision about a pool that always has hints", name)
		}
	}
}

// affinity is the kubelet's verdict on k GPUs with m VFs on an empty node.
func affinity(policy string, gpus, vfs model.Resource, k, m int) bool {
	nodes := func(r model.Resource) (all []topology.NUMANode) {
		for _, d := range r.Devices {
			all = append(all, d.NUMA)
		}
		return all
	}
	requested := []topologymanager.Resource{{Count: k, All: nodes(gpus), Free: nodes(gpus)}}
	if m > 0 {
		requested = append(requested, topologymanager.Resource{Count: m, All: nodes(vfs), Free: nodes(vfs)})
	}
	_, admitted := topologymanager.Manager{Policy: policy}.Affinity(requested)
	return admitted
}

// served reports whether the hints of VFs refuse no container of k GPUs and k VFs that is admitted without.
func served(policy string, gpus, vfs model.Resource) bool {
	for k := 1; k <= len(gpus.Devices); k++ {
		m := min(k, len(vfs.Devices))
		if affinity(policy, gpus, vfs, k, 0) && !affinity(policy, gpus, vfs, k, m) {
			return false
		}
	}
	return true
}

// TestDecisionsOnMachines: on each recorded machine, with several numbers of VFs, a pool has hints if, and
// only if, the kubelet then refuses no container of k GPUs and k VFs on an empty node.
func TestDecisionsOnMachines(t *testing.T) {
	t.Parallel()
	both := map[bool]int{}
	for _, name := range machines.Names() {
		for _, count := range []int{1, 2, 4, 8} {
			gpus, vfs, nodes := onMachine(t, name, count)
			for _, policy := range []string{topologymanager.Restricted, topologymanager.SingleNUMANode} {
				h := hinting(0, vfs, gpus)
				h.Nodes, h.CPUs, h.Kubelet.TopologyManagerPolicy = nodes, nodes, policy
				got, want := h.Decide()["vf"], served(policy, gpus, vfs)
				if (got == "") != want {
					t.Errorf("%s with %d VFs, %s: %s", name, count, policy, got)
				}
				both[want]++
			}
		}
	}
	if both[true] == 0 || both[false] == 0 {
		t.Errorf("outcomes %v; want both", both)
	}
}

// onMachine returns the GPUs and the VFs of a machine, and its NUMA nodes. A recording with VFs has these.
func onMachine(t *testing.T, name string, count int) (gpus, vfs model.Resource, nodes []int) {
	t.Helper()
	recorded, err := machines.Load(name, count)
	if err != nil {
		recorded, err = machines.Load(name, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	tree, err := topology.Read(recorded.FS())
	if err != nil {
		t.Fatal(err)
	}
	gpus.Name, vfs.Name = "gpu", "vf"
	for d := range tree.Devices() {
		one := model.Device{NUMA: d.NUMA, Healthy: true}
		switch {
		case d.Class.IsGPU() && (d.Vendor == 0x1002 || d.Vendor == 0x10de):
			gpus.Devices = append(gpus.Devices, one)
		case d.IsVF():
			vfs.Devices = append(vfs.Devices, one)
		}
	}
	return gpus, vfs, model.HintedNodes(recorded.FS(), tree)
}

// TestDecisionsAtRandom: the same for random numbers of devices on up to four NUMA nodes, some without one.
func TestDecisionsAtRandom(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(5, 1))
	resource := func(name string, nodes int) model.Resource {
		counts := make([]int, nodes)
		for i := range counts {
			counts[i] = random.IntN(5)
		}
		r := on(name, counts...)
		r.Devices = append(r.Devices, make([]model.Device, random.IntN(3)/2)...)
		return r
	}
	both := map[string]int{}
	for range scale.Rounds(5000) {
		nodes := 1 + random.IntN(4)
		gpus, vfs := resource("gpu", nodes), resource("vf", nodes)
		if len(vfs.Devices) == 0 {
			continue
		}
		policy := []string{topologymanager.Restricted, topologymanager.SingleNUMANode}[random.IntN(2)]
		h := hinting(nodes, vfs, gpus)
		h.Kubelet.TopologyManagerPolicy = policy
		got, want := h.Decide()["vf"], served(policy, gpus, vfs)
		if (got == "") != want {
			t.Fatalf("%s: GPUs %v, VFs %v: %s", policy, gpus.Devices, vfs.Devices, got)
		}
		both[fmt.Sprint(policy, want)]++
	}
	if len(both) != 4 {
		t.Errorf("outcomes %v; want both under each policy", both)
	}
}
