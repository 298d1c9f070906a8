// SPDX-License-Identifier: Apache-2.0

package qualify

import (
	"slices"

	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/cmd/tandem/offer"
	"github.com/tandem-k8s/tandem/cmd/tandem/plan"
)

// plans returns the placement of containers with 1, 2, 4 and so on pairs, and with as many as possible, on
// the empty machine.
func plans(n *machine.Node) ([]Plan, error) {
	vfs, _, err := n.VFDevices("", &machine.Source{})
	if err != nil {
		return nil, err
	}
	list := []Plan{}
	for _, count := range counts(min(len(n.GPUDevices()), len(vfs))) {
		q := plan.Question{GPUs: uint(count), VFs: uint(count)}
		answer, _, err := q.Answer(n, &machine.Source{})
		if err != nil {
			return nil, err
		}
		list = append(list, Plan{Count: count, Nodes: answer.Nodes, Pairs: answer.Pairs})
	}
	return list, nil
}

// counts returns the powers of two up to a number, and the number.
func counts(most int) (list []int) {
	for count := 1; count < most; count *= 2 {
		list = append(list, count)
	}
	if most > 0 {
		list = append(list, most)
	}
	return list
}

// near returns the number of pairs over which GPUDirect RDMA works.
func (p Plan) near() (count int) {
	for _, pair := range p.Pairs {
		if pair.Distance.Direct() {
			count++
		}
	}
	return count
}

// possiblePairs returns the greatest number of near pairs of devices on NUMA nodes, or on all without nodes.
// It is independent of package placement.
func possiblePairs(n *machine.Node, nodes []int) int {
	on := func(list []offer.Device) []offer.Device {
		return slices.DeleteFunc(list, func(d offer.Device) bool {
			node, known := d.NUMA.Number()
			return known && len(nodes) > 0 && !slices.Contains(nodes, node)
		})
	}
	all, _, _ := n.VFDevices("", &machine.Source{}) // without config.json there is no error
	gpus, vfs := on(n.GPUDevices()), on(all)
	return newMatching(len(gpus), len(vfs), func(gpu, vf int) bool {
		return n.Tree.Distance(gpus[gpu].Address, vfs[vf].Address).Level.Direct()
	}).size()
}

// matching assigns GPUs to near VFs, each by its place in a list.
type matching struct {
	gpus int
	near func(gpu, vf int) bool
	of   []int // GPU of each VF, -1 for none
}

func newMatching(gpus, vfs int, near func(gpu, vf int) bool) *matching {
	return &matching{gpus: gpus, near: near, of: slices.Repeat([]int{-1}, vfs)}
}

// size returns the size of a maximum matching, by augmenting paths.
func (m *matching) size() (count int) {
	for gpu := range m.gpus {
		if m.augment(gpu, make([]bool, len(m.of))) {
			count++
		}
	}
	return count
}

// augment assigns a GPU, and moves other GPUs if necessary.
func (m *matching) augment(gpu int, seen []bool) bool {
	for vf := range m.of {
		if seen[vf] || !m.near(gpu, vf) {
			continue
		}
		seen[vf] = true
		if m.of[vf] < 0 || m.augment(m.of[vf], seen) {
			m.of[vf] = gpu
			return true
		}
	}
	return false
}
