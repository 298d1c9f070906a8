// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/node"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/test/published"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/recording"
)

// judgedWorld is a machine, what is offered of it, and how its kubelet admits pods.
type judgedWorld struct {
	name    string
	tree    *topology.Tree
	numa    []node.NUMA
	offered []published.Resource
	kubelet v1alpha1.Kubelet
}

func (w *judgedWorld) String() string { return w.name }

// The resources that pods ask for: NICs can be in two pools.
const (
	judgedGPUs = published.GPUs
	judgedVFs  = published.VFs
	judgedRail = "tandem.dev/rail"
)

// randomJudgedWorld is a recorded machine or one with four NUMA nodes, with some VFs on each NIC, in one pool
// or two, with hints or without, whole GPUs or partitions, under any policy and scope.
func randomJudgedWorld(t *testing.T, random *rand.Rand) *judgedWorld {
	t.Helper()
	policies := []string{"restricted", "restricted", "restricted", "best-effort", "single-numa-node", "none"}
	w := &judgedWorld{kubelet: v1alpha1.Kubelet{
		TopologyManagerPolicy: policies[random.IntN(len(policies))],
		TopologyManagerScope:  []string{"container", "container", "pod"}[random.IntN(3)],
		TopologyManagerPolicyOptions: map[string]string{
			"prefer-closest-numa-nodes": fmt.Sprint(random.IntN(2) == 0),
			"max-allowable-numa-nodes":  fmt.Sprint(8 + random.IntN(2)),
		},
	}}
	vfs := []int{1, 1, 2, 4, 8}[random.IntN(5)]
	if random.IntN(4) == 0 {
		var err error
		if w.tree, err = quarters([][]int{{0, 1, 2, 3}, {1, 2}}[random.IntN(2)]); err != nil {
			t.Fatal(err)
		}
		w.name = "quarters"
		for i := range 4 {
			distances := slices.Repeat([]uint64{32}, 4)
			distances[i], distances[i^1] = 10, uint64(12+random.IntN(2)*20)
			w.numa = append(w.numa, node.NUMA{ID: i, Distances: distances})
		}
		w.offerFunctions(random, func(d *topology.Device) (gpu, vf bool) {
			return d.Address.Device < 3, d.Address.Device == 3
		})
	} else {
		names := machines.Names()
		w.name = names[random.IntN(len(names))]
		sys, tree := machines.Read(t, w.name, vfs)
		numa, err := node.ReadNUMA(sys, tree.NUMANodes())
		must(t, err)
		w.tree, w.numa = tree, numa
		w.offerFunctions(random, func(d *topology.Device) (gpu, vf bool) {
			return machines.IsGPU(d), d.IsVF()
		})
	}
	w.manage(random)
	w.name = fmt.Sprintf("%s, %d VFs, %v", w.name, vfs, w.kubelet)
	return w
}

// offerFunctions makes resources of the machine's functions.
func (w *judgedWorld) offerFunctions(random *rand.Rand, is func(*topology.Device) (gpu, vf bool)) {
	gpus := published.Resource{Name: judgedGPUs, Kind: device.GPU}
	pools := []published.Resource{{Name: judgedVFs, Kind: device.VF}, {Name: judgedRail, Kind: device.VF}}
	partitions := []int{1, 1, 1, 2}[random.IntN(4)]
	split, hinted := random.IntN(3), [2]bool{random.IntN(2) == 0, random.IntN(2) == 0}
	pfs := map[topology.Address]int{}
	for d := range w.tree.Devices() {
		gpu, vf := is(d)
		one := device.Device{ID: d.Address.String(), Address: d.Address, NUMA: d.NUMA, Healthy: true}
		switch {
		case gpu && partitions == 1:
			gpus.Devices = append(gpus.Devices, one)
		case gpu:
			for i := range partitions {
				one.ID = fmt.Sprintf("%s-%d", d.Address, i)
				gpus.Devices = append(gpus.Devices, one)
			}
		case vf:
			pf := d.Function()
			if _, seen := pfs[pf]; !seen {
				pfs[pf] = len(pfs)
			}
			pool := 0
			if split == 2 { // every other NIC is of the other pool
				pool = pfs[pf] % 2
			}
			if !hinted[pool] {
				one.NUMA = topology.NUMANode{}
			}
			pools[pool].Devices = append(pools[pool].Devices, one)
		}
	}
	if random.IntN(2) == 0 {
		for i := range gpus.Devices[1:] { // a chain: the next card is near
			a, b := gpus.Devices[i].Address, gpus.Devices[i+1].Address
			if a != b {
				gpus.Links = append(gpus.Links, topology.Link{A: a, B: b, Type: topology.XGMI, Hops: 1, Count: 1})
			}
		}
	}
	for _, o := range append([]published.Resource{gpus}, pools...) {
		if len(o.Devices) > 0 {
			w.offered = append(w.offered, o)
		}
	}
}

// quarters is a machine with four NUMA nodes, each with two GPUs, and some with a NIC with three VFs.
func quarters(nics []int) (*topology.Tree, error) {
	const nodes = 4
	b := recording.NewBuilder()
	add := func(domain, device, function, numa int) {
		a := topology.Address{Domain: uint32(domain), Bus: 1, Device: uint8(device), Function: uint8(function)}
		dir := fmt.Sprintf("devices/pci%04x:01/%s", domain, a)
		b.Link("bus/pci/devices/"+a.String(), "../../../"+dir)
		b.File(dir+"/numa_node", fmt.Sprintln(numa))
	}
	for n := range nodes {
		add(n, 1, 0, n)
		add(n, 2, 0, n)
		for vf := 1; vf < 4 && slices.Contains(nics, n); vf++ {
			add(n, 3, vf, n)
		}
	}
	b.File("devices/system/node/online", fmt.Sprintf("0-%d\n", nodes-1))
	machine, err := b.Machine()
	if err != nil {
		return nil, err
	}
	return topology.Read(machine.FS())
}
