// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/picture"
	"github.com/tandem-k8s/tandem/coordination/kubelet/devicemanager"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/coordination/spelling"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// Plan is the answer, in JSON. The i-th GPU and the i-th VF are a pair.
type Plan struct {
	Version cli.V1   `json:"version"`
	GPUs    []string `json:"gpus"` // device IDs
	VFs     []string `json:"vfs"`
	Pairs   []Pair   `json:"pairs"`
	// NUMA nodes that the kubelet would choose; empty if it has no choice
	Nodes []int `json:"nodes"`
	// reasons for which the kubelet would refuse the container, or would admit the container slowly
	Note   string `json:"note,omitempty"`
	Reason string `json:"reason"`

	rejected bool
}

// IsRejected reports whether the kubelet would reject the container; the note has the reason.
func (p *Plan) IsRejected() bool { return p.rejected }

// Table returns a table for people.
func (p *Plan) Table() *cli.Text {
	var out cli.Text
	switch {
	case len(p.Pairs) > 0:
		out.Row("GPU", "VF", "DISTANCE")
		for _, pair := range p.Pairs {
			out.Row(pair.GPU, pair.VF, MarkDistances(pair.Distance.String()))
		}
	case len(p.GPUs) > 0:
		fmt.Fprintf(&out, "GPU\n%s\n", strings.Join(p.GPUs, "\n"))
	default:
		fmt.Fprintf(&out, "VF\n%s\n", strings.Join(p.VFs, "\n"))
	}
	out.Line()
	for _, node := range p.Nodes {
		fmt.Fprintf(&out, "NUMA node %d\n", node)
	}
	if p.Note != "" {
		verdict := cli.Doubtful
		if p.rejected {
			verdict = cli.Bad
		}
		out.Line(verdict.Of("note:"), " ", p.Note)
	}
	out.Line(MarkDistances(p.Reason))
	return &out
}

// Question is a container's request, and the devices in use.
type Question struct {
	GPUs, VFs uint
	Used      []string // device IDs; addresses in any form that lspci prints
	Config    string   // config.json of the SR-IOV network device plugin; "" for all NICs with RDMA
}

// refused is the note on a request that the policy restricted does not admit.
const refused = "under policy restricted the kubelet rejects this request: no minimal set of NUMA nodes " +
	"satisfies both GPUs and VFs; VFs without NUMA nodes (excludeTopology) are admitted"

// assumed is the note that follows a verdict on a request without a configuration of VFs.
const assumed = "without --config the VFs are one pool without excludeTopology"

// tooManyNodes is the note on a machine with more NUMA nodes than the kubelet supports by default.
var tooManyNodes = fmt.Sprintf("more than %d NUMA nodes have devices: under policy restricted the "+
	"kubelet does not start without the option max-allowable-numa-nodes", model.MaxNodes)

// Answer plans for a machine as the coordinator does for a call of the kubelet. The strings are notes.
func (q *Question) Answer(n *Node) (*Plan, []string, error) {
	views, notes, err := q.readViews(n)
	if err != nil {
		return nil, nil, err
	}
	view, requests := views.All, q.requests()
	manager, err := n.topologyManager()
	if err != nil {
		return nil, nil, err
	}
	nodes, admitted := views.Nodes(manager.Rule, requests)
	choice, err := placement.Choose(n.Tree, view.Placement(view.Expected(requests, nodes)))
	if err != nil {
		return nil, nil, err
	}
	p := planOf(choice, nodes.Numbers())
	var remarks []string
	switch {
	case manager.Rule.TooMany(view.Demands(requests)...):
		remarks = append(remarks, tooManyNodes)
	case !admitted:
		p.rejected = true
		remarks = append(remarks, refused)
	}
	if slow := newMerge(n).slowNote(view, requests); slow != "" {
		remarks = append(remarks, slow)
	}
	if len(remarks) > 0 && q.Config == "" && q.VFs > 0 {
		remarks = append(remarks, assumed)
	}
	p.Note = strings.Join(remarks, "; ")
	return p, notes, nil
}

// requests returns the requests of the container.
func (q *Question) requests() model.Requests { return NewRequests(int(q.GPUs), int(q.VFs)) }

// topologyManager returns the Topology Manager of the machine's kubelet.
func (n *Node) topologyManager() (model.TopologyManager, error) {
	return n.Kubelet.TopologyManager(model.ReadNUMANodes(n.Sys, n.Tree.NUMANodes()))
}

// readViews returns the views of the machine's devices, some of them in use, and notes. It is an error if too
// few are free.
func (q *Question) readViews(n *Node) (views Views, notes []string, err error) {
	gpus := n.GPUDevices()
	vfs, notes, err := n.VFPools(q.Config)
	if err != nil {
		return Views{}, nil, err
	}
	used, err := q.usedIDs(slices.Concat(gpus, Devices(vfs)))
	if err != nil {
		return Views{}, nil, err
	}
	views = NewViews(n.Links, gpus, vfs, used...)
	free := func(kind model.Kind) uint { return uint(views.All.Free.Common(views.All.Node.OfKind[kind])) }
	if g, v := free(model.GPU), free(model.VF); g < q.GPUs || v < q.VFs {
		why := ""
		if v < q.VFs && q.Config != "" {
			why = fmt.Sprintf("; tandem doctor, for this machine and with --config %s, shows why each selector "+
				"rejects devices", q.Config)
		}
		return Views{}, nil, fmt.Errorf("choose %s and %s: %s and %s are free%s", cli.Count(q.GPUs, "GPU"),
			cli.Count(q.VFs, "VF"), cli.Count(g, "GPU"), cli.Count(v, "VF"), why)
	}
	return views, notes, nil
}

func planOf(c placement.Choice, nodes []int) *Plan {
	p := &Plan{GPUs: []string{}, VFs: []string{}, Pairs: []Pair{}, Nodes: []int{}, Reason: c.Reason}
	p.Nodes = append(p.Nodes, nodes...)
	for _, d := range c.GPUs {
		p.GPUs = append(p.GPUs, d.ID)
	}
	for _, d := range c.VFs {
		p.VFs = append(p.VFs, d.ID)
	}
	for _, pair := range c.Pairs {
		p.Pairs = append(p.Pairs, NewPair(pair))
	}
	return p
}

// usedIDs returns the IDs of the used devices. They may be given as addresses in any form of [canonicalID].
func (q *Question) usedIDs(devices []model.Device) (used []string, err error) {
	var known []string
	for _, d := range devices {
		known = append(known, d.ID)
	}
	slices.Sort(known)
	for _, given := range q.Used {
		id := canonicalID(strings.TrimSpace(given))
		if !slices.Contains(known, id) {
			proposal := ""
			if _, err := topology.ParseAddress(id); err != nil { // an address is well spelled
				proposal = spelling.Question(given, known)
			}
			return nil, fmt.Errorf("mark %q as used: no such GPU or VF%s", given, proposal)
		}
		used = append(used, id)
	}
	return used, nil
}

// canonicalID returns an address in the kernel's form; lspci omits the domain on machines with a single one.
// Other IDs stay unchanged.
func canonicalID(id string) string {
	for _, domain := range []string{"", "0000:"} {
		if a, err := topology.ParseAddress(domain + id); err == nil {
			return a.String()
		}
	}
	return id
}

// merge is the kubelet's merge of the hints of a container's devices with those of an exclusive CPU, and with
// those of memory if memoryManagerPolicy is Static. The other settings are those that Tandem advises.
type merge struct {
	rule         model.Rule
	cpus, memory model.Demand
}

func newMerge(n *Node) merge {
	const allNodes = 64 // also on a machine for which the kubelet needs the option max-allowable-numa-nodes
	return merge{
		rule:   model.Rule{Policy: model.Restricted, MaxNodes: allNodes},
		cpus:   demandOn(model.HintedNodes(n.Sys, n.Tree)),
		memory: demandOn(n.Tree.NUMANodes()),
	}
}

// demandOn returns the demand for a part of a resource that each of some NUMA nodes has.
func demandOn(nodes []int) model.Demand {
	d := model.Demand{Count: 1}
	for _, number := range nodes {
		d.All.Add(topology.Node(number))
		d.Free.Add(topology.Node(number))
	}
	return d
}

// mergeTimes returns the kubelet's CPU time for some devices without and with hints of memory.
func (m merge) mergeTimes(devices []model.Demand) (without, with model.MergeTime) {
	all := append(slices.Clone(devices), m.cpus)
	return m.rule.MergeTime(all...), m.rule.MergeTime(append(all, m.memory)...)
}

// slowNote returns the note on a request whose hints the kubelet merges slowly (kubernetes#137700); else "".
func (m merge) slowNote(view *devicemanager.View, requests model.Requests) string {
	devices := view.Demands(requests)
	took, withMemory := m.mergeTimes(devices)
	if !took.Slow() && !withMemory.Slow() {
		return ""
	}
	widest := m.cpus.Nodes()
	for _, d := range devices {
		widest = max(widest, d.Nodes())
	}
	note := fmt.Sprintf("for a container with exclusive CPUs the kubelet takes about %s of CPU time to merge "+
		"the hints on %s, and with memoryManagerPolicy Static about %s on %s, while no other pod starts",
		took, cli.Count(widest, "NUMA node"), withMemory, cli.Count(m.memory.Nodes(), "NUMA node"))
	gpus := slices.DeleteFunc(slices.Clone(requests), func(r model.Request) bool {
		return r.Resource == int(model.VF)
	})
	if after, afterMemory := m.mergeTimes(view.Demands(gpus)); after < took {
		note += fmt.Sprintf(`; "excludeTopology": "auto" in the pool of VFs reduces the times to about %s and %s`,
			after, afterMemory)
	}
	return note
}

// Picture returns the machine with the container's planned devices: both devices of a pair have one colour.
func (p *Plan) Picture(title string, n *Node) *picture.Node {
	drawn := NewMatrix(n, false).Picture(title, n.Tree)
	drawn.Title = fmt.Sprintf("%s and %s on %s", cli.Count(len(p.GPUs), "GPU"),
		cli.Count(len(p.VFs), "VF"), title)
	drawn.Summary = strings.Split(p.Reason, "; ")
	if p.Note != "" {
		drawn.AddNote("%s", p.Note)
	}
	owners := p.pairOwners()
	for i := range drawn.Cards {
		c := &drawn.Cards[i]
		if c.Kind == model.VF && len(c.Devices) == 0 { // the NIC itself counts
			c.Devices = []picture.Device{{ID: c.Address.String(), Address: c.Address}}
		}
		for j := range c.Devices {
			d := &c.Devices[j]
			d.State = picture.Free
			if owner, planned := owners[d.ID]; planned {
				d.State, d.Owner = picture.Allocated, owner
			}
		}
	}
	return drawn
}

// pairOwners returns the pair of every planned device: the first pair, if GPUs share a VF or VFs share a GPU.
func (p *Plan) pairOwners() map[string]string {
	owners := map[string]string{}
	for i, pair := range p.Pairs {
		owner := cmp.Or(owners[pair.GPU], owners[pair.VF], fmt.Sprintf("pair %d, %s", i+1, pair.Distance))
		owners[pair.GPU], owners[pair.VF] = owner, owner
	}
	for _, id := range slices.Concat(p.GPUs, p.VFs) {
		owners[id] = cmp.Or(owners[id], "in no pair")
	}
	return owners
}
