// SPDX-License-Identifier: Apache-2.0

package models_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/node"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/test/published"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/recording"
)

// The resources of a node: NICs can be in two pools.
const (
	gpus = published.GPUs
	vfs  = published.VFs
	rail = "tandem.dev/rail"
)

// layout is a node in the terms of the kubelet: its NUMA nodes, the devices on them, and its options.
type layout struct {
	policy, scope string
	closest       bool             // prefer-closest-numa-nodes
	most          int              // max-allowable-numa-nodes
	numbers       []int            // of the NUMA nodes
	distances     [][]uint64       // between the NUMA nodes
	devices       map[string][]int // the NUMA node of each device by resource; none for a device without
	failed        map[string][]int // indexes of devices that are not healthy
}

// none stands for the NUMA node of a device without one.
const none = -1

// world is a node with a device tree.
type world struct {
	layout
	numa      []node.NUMA
	tree      *topology.Tree
	resources []published.Resource
}

func (w *world) String() string { return fmt.Sprintf("%+v", w.layout) }

// randomOptions chooses the options of the Topology Manager.
func randomOptions(random *rand.Rand) layout {
	return layout{
		policy:  []string{"none", "best-effort", "restricted", "restricted", "single-numa-node"}[random.IntN(5)],
		scope:   []string{"container", "pod"}[random.IntN(2)],
		closest: random.IntN(2) == 0, most: 8 + random.IntN(2),
	}
}

// randomLayout is a machine with one to eight NUMA nodes, or nine if the kubelet allows them. The kubelet
// tries all combinations of their sets: the resources have devices on so few nodes that there are at most
// 2^most of them.
func randomLayout(random *rand.Rand) layout {
	const most = 11
	l := randomOptions(random)
	for n := range 1 + random.IntN(l.most) {
		l.numbers = append(l.numbers, n)
	}
	l.distances = randomDistances(random, len(l.numbers))
	if last := len(l.numbers) - 1; !l.closest && random.IntN(4) == 0 {
		// the kubelet looks distances up by number
		l.numbers[last] += random.IntN(54)
	}
	l.devices = map[string][]int{}
	left := most
	for _, name := range []string{gpus, vfs, rail}[:1+random.IntN(3)] {
		nodes := l.randomNodes(random, name, left)
		left -= len(nodes)
		for range 1 + random.IntN(3) {
			l.devices[name] = append(l.devices[name], nodes...)
		}
		for range random.IntN(3) * random.IntN(4) * random.IntN(2) {
			l.devices[name] = append(l.devices[name], none)
		}
		if random.IntN(20) == 0 {
			l.devices[name] = append(l.devices[name], 62) // a node that the kubelet does not know
		}
		if len(l.devices[name]) == 0 {
			l.devices[name] = []int{none, none, none}
		}
	}
	return l
}

// randomDistances are distances that are the same in many cases.
func randomDistances(random *rand.Rand, count int) [][]uint64 {
	distances := make([][]uint64, count)
	for a := range distances {
		for b := range count {
			distance := uint64(10)
			if a != b {
				distance += 1 + uint64(random.IntN(3)*random.IntN(11))
			}
			distances[a] = append(distances[a], distance)
		}
	}
	return distances
}

// randomNodes chooses the NUMA nodes of a resource, in half of the cases those of the GPUs.
func (l layout) randomNodes(random *rand.Rand, name string, most int) []int {
	of := func(number int) bool { return !slices.Contains(l.devices[gpus], number) }
	on := slices.DeleteFunc(slices.Clone(l.numbers), of)
	if name != gpus && len(on) <= most && random.IntN(2) == 0 {
		return on
	}
	const published = 7 // a node with devices on more than eight NUMA nodes is not published
	var nodes []int
	count := min(len(l.numbers), published)
	for _, i := range random.Perm(count)[:random.IntN(min(count, most)+1)] {
		nodes = append(nodes, l.numbers[i])
	}
	return nodes
}

// build makes the machine of a layout. All devices of a NUMA node have one host bridge.
func (l layout) build() (*world, error) {
	w, b := &world{layout: l}, recording.NewBuilder()
	var online []string
	for i, number := range l.numbers {
		w.numa = append(w.numa, node.NUMA{ID: number, Distances: l.distances[i]})
		online = append(online, fmt.Sprint(number))
	}
	devices := map[string][]device.Device{}
	for function, name := range []string{gpus, vfs, rail} {
		for i, number := range l.devices[name] {
			a := topology.Address{
				Domain: uint32(number + 1), Bus: 1, Device: uint8(i), Function: uint8(function),
			}
			dir := fmt.Sprintf("devices/pci%04x:01/%s", a.Domain, a)
			b.Link("bus/pci/devices/"+a.String(), "../../../"+dir)
			b.File(dir+"/numa_node", fmt.Sprintln(max(number, 0)))
			devices[name] = append(devices[name], device.Device{
				ID: a.String(), Address: a, NUMA: topology.Node(number), Healthy: !slices.Contains(l.failed[name], i),
			})
		}
	}
	w.resources = resourcesOf(devices)
	b.File("devices/system/node/online", strings.Join(online, ",")+"\n")
	machine, err := b.Machine()
	if err == nil {
		w.tree, err = topology.Read(machine.FS())
	}
	return w, err
}

// recorded is a recorded machine with some VFs on each NIC.
func recorded(t *testing.T, random *rand.Rand) *world {
	t.Helper()
	names := machines.Names()
	sys, tree := machines.Read(t, names[random.IntN(len(names))], []int{1, 1, 2, 4}[random.IntN(4)])
	numa, err := node.ReadNUMA(sys, tree.NUMANodes())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{layout: randomOptions(random), tree: tree, numa: numa}
	hinted, split := random.IntN(2) == 0, random.IntN(3) == 0 && len(w.numa) <= 4
	devices := map[string][]device.Device{}
	for _, r := range published.Resources(tree, hinted) {
		for _, d := range r.Devices {
			name := r.Name
			if name == vfs && split && d.Address.Function%2 == 0 {
				name = rail
			}
			devices[name] = append(devices[name], d)
		}
	}
	w.resources = resourcesOf(devices)
	return w
}

// resourcesOf returns the resources of devices, as their plugins announce them.
func resourcesOf(devices map[string][]device.Device) (resources []published.Resource) {
	for _, name := range slices.Sorted(maps.Keys(devices)) {
		r := published.Resource{Name: name, Kind: device.VF, Devices: devices[name]}
		if name == gpus {
			r.Kind = device.GPU
		}
		resources = append(resources, r)
	}
	return resources
}

// options returns --topology-manager-policy-options.
func (w *world) options() map[string]string {
	return map[string]string{
		"prefer-closest-numa-nodes": fmt.Sprint(w.closest), "max-allowable-numa-nodes": fmt.Sprint(w.most),
	}
}

// byNumber returns the distances between NUMA nodes by their numbers.
func (w *world) byNumber() [][]int {
	distances := make([][]int, w.numa[len(w.numa)-1].ID+1)
	for _, n := range w.numa {
		for _, d := range n.Distances {
			distances[n.ID] = append(distances[n.ID], int(d))
		}
	}
	return distances
}
