// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/coordination/kubelet/devicemanager"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// draws is the number of simulated admissions with the stock plugins. It is odd, for a median.
const draws = 1001

// draw is an admission with the stock plugins.
type draw struct {
	placement.Devices
	pairs []placement.Pair
	near  int // pairs on one switch
}

// Stock plans as the stock plugins choose under the same kubelet: GPUs by the vendor's policy, VFs at random.
// The plan is one of many draws, the median by the number of pairs on one switch. The strings are notes.
func (q *Question) Stock(n *Node) (*Plan, []string, error) {
	stock := *n
	stock.Stock = true
	views, notes, err := q.readViews(&stock)
	if err != nil {
		return nil, nil, err
	}
	requests := q.requests()
	view := views.ForRequests(requests)[0]
	manager, err := n.topologyManager()
	if err != nil {
		return nil, nil, err
	}
	drawn := q.drawMany(n.Tree, view, manager)
	if _, admitted := views.Nodes(manager.Rule, requests); !admitted || drawn == nil {
		p := planOf(placement.Choice{Reason: "stock plugins"}, nil)
		p.rejected, p.Note = true, refused
		if manager.Rule.TooMany(view.Demands(requests)...) {
			p.Note = tooManyNodes
		}
		return p, notes, nil
	}
	typical := drawn[len(drawn)/2]
	p := planOf(placement.Choice{GPUs: typical.GPUs, VFs: typical.VFs, Pairs: typical.pairs}, nil)
	p.Nodes = nodesOf(n.Tree, typical.GPUs)
	p.Reason = reasonOf(drawn)
	return p, notes, nil
}

// drawMany admits the container many times, each time on the same free devices, and orders the results by
// pairs on one switch. The result is nil if the kubelet rejects the container, which does not depend on the
// draw: all devices of a request are free.
func (q *Question) drawMany(
	tree *topology.Tree, view *devicemanager.View, manager model.TopologyManager,
) []draw {
	plugins, drawn := newStockPlugins(tree, view.Node), make([]draw, draws)
	all := view.Free.Clone()
	all.Include(view.Taken)
	for i := range drawn {
		requests := q.requests()
		if plugins.random.IntN(len(requests)) > 0 { // the kubelet's order of resources is random
			slices.Reverse(requests)
		}
		requests = slices.DeleteFunc(requests, func(r model.Request) bool { return r.Count == 0 })
		admission := devicemanager.Admission{
			Node: view.Node, Kubelet: manager,
			Containers: []model.Container{{Requests: requests}}, Others: plugins,
			Healthy: all, Taken: view.Taken.Clone(), Reusable: view.Node.NewSet(),
		}
		if admission.Admit() != nil {
			return nil
		}
		drawn[i] = newDraw(tree, view.Node, plugins.devices)
	}
	slices.SortStableFunc(drawn, func(a, b draw) int { return cmp.Compare(a.near, b.near) })
	return drawn
}

func newDraw(tree *topology.Tree, node *devicemanager.Devices, devices devicemanager.Set) draw {
	d := draw{Devices: node.Split(devices)}
	d.pairs = placement.PairsOf(tree, d.Devices)
	d.near = placement.Together(d.pairs)
	return d
}

// stockPlugins answer the kubelet for one container at a time.
type stockPlugins struct {
	node    *devicemanager.Devices
	vendor  *Vendor
	random  *rand.Rand
	devices devicemanager.Set // of the latest container
}

func newStockPlugins(tree *topology.Tree, node *devicemanager.Devices) *stockPlugins {
	var addresses []topology.Address
	for _, d := range node.Devices(node.OfKind[model.GPU]) {
		addresses = append(addresses, d.Address)
	}
	return &stockPlugins{
		node: node, vendor: NewVendor(NewScores(tree, addresses)), random: rand.New(rand.NewPCG(1, 1)),
	}
}

// Hints returns none: CPUs and memory are ignored.
func (*stockPlugins) Hints(int) []model.Hints { return nil }

// Prefer returns GPUs by the vendor's policy, and no VFs.
func (p *stockPlugins) Prefer(_ int, q devicemanager.Question) devicemanager.Set {
	preferred := p.node.NewSet()
	if q.Resource != int(model.GPU) {
		return preferred
	}
	var available []int
	first := p.node.Resources[q.Resource].First
	q.Available().Each(func(i int) { available = append(available, i-first) })
	for _, i := range p.vendor.Choose(available, q.Size, p.random) {
		preferred.Insert(first + i)
	}
	return preferred
}

// Pick picks at random.
func (p *stockPlugins) Pick(of devicemanager.Set, count int) devicemanager.Set {
	var devices []int
	of.Each(func(i int) { devices = append(devices, i) })
	picked := p.node.NewSet()
	for _, i := range PickRandom(devices, count, p.random) {
		picked.Insert(i)
	}
	return picked
}

// Allocate keeps the devices.
func (p *stockPlugins) Allocate(_ int, _ model.Hint, devices devicemanager.Set) error {
	p.devices = devices
	return nil
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
		cli.Count(len(typical.pairs), "pair"), placement.Levels(typical.pairs), len(drawn),
		float64(sum)/float64(len(drawn)))
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
