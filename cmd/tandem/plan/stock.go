// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/tandem-k8s/tandem/cmd/tandem/document"
	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/cmd/tandem/offer"
	"github.com/tandem-k8s/tandem/cmd/tandem/simulation"
	"github.com/tandem-k8s/tandem/cmd/tandem/simulation/world"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// draws is the number of simulated admissions with the stock plugins. It is odd, for a median.
const draws = 1001

// draw is an admission with the stock plugins.
type draw struct {
	gpus, vfs []placement.Device
	pairs     []placement.Pair
	near      int // pairs on one switch
}

// Stock plans as the stock plugins choose under the same kubelet: GPUs by the vendor's policy, VFs at random.
// The plan is one of many draws, the median by the number of pairs on one switch. The strings are notes.
func (q *Question) Stock(n *machine.Node, from *machine.Source) (*Plan, []string, error) {
	gpus, vfs, notes, err := q.devices(n, from)
	if err != nil {
		return nil, nil, err
	}
	node, err := world.New(from.Title(), n.Tree, free(gpus), free(vfs), n.Links)
	if err != nil {
		return nil, nil, err
	}
	rules := world.Rules{Policy: hints.Restricted, ExcludeTopology: withoutNodes(vfs)}
	drawn := q.draw(node, rules)
	if drawn == nil {
		p := planOf(placement.Choice{Reason: "stock plugins"}, nil)
		p.rejected, p.Note = true, refused
		return p, notes, nil
	}
	typical := drawn[len(drawn)/2]
	p := planOf(placement.Choice{GPUs: typical.gpus, VFs: typical.vfs, Pairs: typical.pairs}, nil)
	p.Nodes = nodesOf(n.Tree, typical.gpus)
	p.Reason = reasonOf(drawn)
	return p, notes, nil
}

// draw admits the container many times, each time on the same free node, and orders the results by pairs on
// one switch. The result is nil if the kubelet rejects the container, which does not depend on the draw: all
// devices of a request are free.
func (q *Question) draw(node *world.Node, rules world.Rules) []draw {
	prefer, random := simulation.Stock(node), rand.New(rand.NewPCG(1, 1))
	request := world.Request{GPUs: int(q.GPUs), VFs: int(q.VFs)}
	drawn := make([]draw, draws)
	for i := range drawn {
		first := world.Kinds[random.IntN(len(world.Kinds))] // the kubelet's order of resources is random
		container, outcome := world.NewState(node, rules).Admit(request, first, prefer, random)
		if outcome != world.Admitted {
			return nil
		}
		drawn[i] = newDraw(node, container)
	}
	slices.SortStableFunc(drawn, func(a, b draw) int { return cmp.Compare(a.near, b.near) })
	return drawn
}

func newDraw(node *world.Node, c world.Container) draw {
	var d draw
	for _, i := range c.Devices[world.GPU] {
		d.gpus = append(d.gpus, node.Devices[world.GPU][i].Device)
	}
	for _, i := range c.Devices[world.VF] {
		d.vfs = append(d.vfs, node.Devices[world.VF][i].Device)
	}
	d.pairs = placement.PairsOf(node.Tree, d.gpus, d.vfs)
	d.near = placement.Together(d.pairs)
	return d
}

// reasonOf tells how typical the draw in the middle is.
func reasonOf(drawn []draw) string {
	typical, sum := drawn[len(drawn)/2], 0
	for _, d := range drawn {
		sum += d.near
	}
	if len(typical.pairs) == 0 {
		return "stock plugins"
	}
	return fmt.Sprintf("%s: %s; stock plugins, the median of %d draws; on average %.2f on one switch",
		document.Count(len(typical.pairs), "pair"), placement.Levels(typical.pairs), len(drawn),
		float64(sum)/float64(len(drawn)))
}

// withoutNodes reports whether no device is announced with a NUMA node.
func withoutNodes(list []offer.Device) bool {
	return !slices.ContainsFunc(list, func(d offer.Device) bool { return d.NUMA != topology.NUMANode{} })
}

// nodesOf returns the NUMA nodes of devices, ascending.
func nodesOf(tree *topology.Tree, devices []placement.Device) []int {
	nodes := []int{}
	for _, d := range devices {
		if node, ok := tree.NUMA(d.Address).Number(); ok {
			nodes = append(nodes, node)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}
