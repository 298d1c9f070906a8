// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/coordination/kubelet/devicemanager"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/plugins/hinting"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// GPUDevices returns the GPUs as a plugin offers them: partitions if amdgpu reports some, else whole
// functions.
func (n *Node) GPUDevices() []model.Device {
	var list []model.Device
	for _, d := range n.GPUs {
		parts := n.Parts[d.Address]
		for _, part := range parts {
			list = append(list, newDevice(part.ID, part.Card, part.NUMA))
		}
		if len(parts) == 0 {
			list = append(list, newDevice(d.Address.String(), d.Address, d.NUMA))
		}
	}
	return list
}

func newDevice(id string, address topology.Address, numa topology.NUMANode) model.Device {
	return model.Device{Device: placement.Device{ID: id, Address: address}, NUMA: numa}
}

// VFPools returns the VFs of each pool of a config.json that has some, by name, or if config is "" those of
// all NICs with RDMA as a pool without a name. The strings are notes.
func (n *Node) VFPools(config string) (list []model.Resource, notes []string, err error) {
	found := []pools.Pool{n.poolOfAll()}
	if config != "" {
		found, notes, err = n.readPools(config)
		if err != nil {
			return nil, nil, err
		}
	}
	for _, pool := range n.decideHints(found) {
		if config != "" && pool.Decision != "" {
			notes = append(notes, fmt.Sprintf("resource %q: %s", pool.Resource.Name, pool.Decision))
		}
		vfs := model.Resource{Kind: model.VF}
		if config != "" {
			vfs.Name = pool.Name
		}
		for _, d := range pool.Devices {
			vfs.Devices = append(vfs.Devices, newDevice(d.ID, d.Address, d.NUMA))
		}
		if len(vfs.Devices) > 0 {
			list = append(list, vfs)
		}
	}
	slices.SortStableFunc(list, func(a, b model.Resource) int { return cmp.Compare(a.Name, b.Name) })
	return list, notes, nil
}

// Devices returns the devices of pools.
func Devices(pools []model.Resource) (all []model.Device) {
	for _, pool := range pools {
		all = append(all, pool.Devices...)
	}
	return all
}

// poolOfAll returns the functions with RDMA as VFs.
func (n *Node) poolOfAll() pools.Pool {
	pool := pools.Pool{Name: "VFs", Resource: &pools.ResourceConfig{}}
	for _, d := range n.Tree.RDMAFunctions() {
		pool.Devices = append(pool.Devices, pools.Device{ID: d.Address.String(), Address: d.Address, NUMA: d.NUMA})
	}
	return pool
}

// decideHints decides about the hints of pools as tandem-rdma does while no container has a VF.
func (n *Node) decideHints(found []pools.Pool) []pools.Pool {
	if n.Stock {
		return found
	}
	node := model.Hinting{
		Kubelet: n.Kubelet, Nodes: n.Tree.NUMANodes(), CPUs: model.HintedNodes(n.Sys, n.Tree),
		GPUs: n.gpuResources(),
	}
	decisions := hinting.Decide(node, found)
	for i, pool := range found {
		if decision, ok := decisions[pool.Name]; ok {
			found[i] = pool.Decided(decision)
		}
	}
	return found
}

// gpuResources returns the GPUs by resource, under a name for people if there is one resource.
func (n *Node) gpuResources() (resources []model.Resource) {
	cards := model.Resource{Name: "GPUs", Kind: model.GPU}
	for _, d := range n.GPUs {
		if len(n.Parts[d.Address]) == 0 {
			cards.Devices = append(cards.Devices, model.Device{NUMA: d.NUMA, Healthy: true})
		}
	}
	if len(cards.Devices) > 0 {
		resources = append(resources, cards)
	}
	for _, name := range slices.Sorted(maps.Keys(n.mixed)) {
		one := model.Resource{Name: name, Kind: model.GPU}
		for _, part := range n.mixed[name] {
			one.Devices = append(one.Devices, model.Device{NUMA: part.NUMA, Healthy: part.Healthy})
		}
		resources = append(resources, one)
	}
	if len(resources) == 1 {
		resources[0].Name = cards.Name
	}
	return resources
}

// readPools returns the pools of the configuration. The strings are notes.
func (n *Node) readPools(file string) ([]pools.Pool, []string, error) {
	config, err := pools.ReadConfig(file)
	if err != nil {
		return nil, nil, err
	}
	found, warnings, err := n.newFinder().Find(config)
	if err != nil {
		return nil, nil, err
	}
	return found, append(config.Warnings, warnings...), nil
}

func (n *Node) newFinder() pools.Finder {
	finder := pools.Finder{
		Sys: n.Sys, Prefix: "intel.com", Tree: func() (*topology.Tree, error) { return n.sysfs, nil },
	}
	if n.from.IsLive() {
		askKernel(&finder, n.from.SysfsRoot)
	}
	return finder
}

// Choices returns the decision of a config.json's selectors for each of the machine's devices.
func (n *Node) Choices(file string) ([]pools.Choice, error) {
	config, err := pools.ReadConfig(file)
	if err != nil {
		return nil, err
	}
	return n.newFinder().Explain(config)
}

// Inventory returns the machine as the DRA driver sees it, with the VFs of a config.json, or of all NICs with
// RDMA if config is "".
func (n *Node) Inventory(config string) (pool.Machine, error) {
	var offered []pools.Pool
	var notes []string
	if config != "" {
		var err error
		offered, notes, err = n.readPools(config)
		if err != nil {
			return pool.Machine{}, err
		}
	}
	found, err := pool.ReadMachine(n.Sys, n.Tree, offered)
	if err != nil {
		return pool.Machine{}, err
	}
	for i := range found.GPUs {
		if gpu := &found.GPUs[i]; gpu.VRAM == 0 {
			gpu.VRAM = n.vram[gpu.Card]
		}
	}
	found.Notes = append(found.Notes, notes...)
	return found, nil
}

// Pair is a GPU and a VF that form a pair, in JSON: their device IDs and their distance.
type Pair struct {
	GPU      string         `json:"gpu,omitempty"` // absent for a VF without a GPU
	VF       string         `json:"vf"`
	Distance topology.Level `json:"distance"`          // UNK without a GPU
	Bridges  *int           `json:"bridges,omitempty"` // crossed ones; absent if unknown
}

// MarkDistances returns a text such as "2 pairs: 1 PIX, 1 SYS" with verdicts on its distances.
func MarkDistances(text string) (marked cli.Cell) {
	for word := range strings.SplitAfterSeq(text, " ") {
		name := strings.TrimRight(word, " ,;")
		var level topology.Level
		_ = level.UnmarshalText([]byte(name)) // UNK for another word
		verdict := cli.Doubtful
		if level.Direct() {
			verdict = cli.Good
		}
		if level.String() != name {
			verdict = ""
		}
		marked = cli.NewCell(marked, verdict.Of(name), word[len(name):])
	}
	return marked
}

// NewPair converts a pair of package placement.
func NewPair(p placement.Pair) Pair {
	return Pair{p.GPU.ID, p.VF.ID, p.Distance.Level, &p.Distance.Bridges}
}

// Views are views of a machine's devices for requests of VFs.
type Views struct {
	All   *devicemanager.View   // all VFs are of one resource
	pools []*devicemanager.View // with the VFs of one pool, by its name
}

// NewViews returns the coordinator's views of a machine's devices, some of them in use. All GPUs are of one
// resource.
func NewViews(links []topology.Link, gpus []model.Device, vfs []model.Resource, used ...string) Views {
	v := Views{All: newView(links, gpus, Devices(vfs), used)}
	for _, pool := range vfs {
		v.pools = append(v.pools, newView(links, gpus, pool.Devices, used))
	}
	return v
}

// ForRequests returns the views for a container's requests: of each pool with as many free VFs, since the
// kubelet takes the VFs of a request from one pool. Without such a pool it is the view of all VFs, for
// requests of several.
func (v Views) ForRequests(requests model.Requests) (views []*devicemanager.View) {
	for _, view := range v.pools {
		short := func(r model.Request) bool {
			return view.Free.Common(view.Node.Resources[r.Resource].All) < r.Count
		}
		if !slices.ContainsFunc(requests, short) {
			views = append(views, view)
		}
	}
	if len(views) == 0 {
		return []*devicemanager.View{v.All}
	}
	return views
}

// Nodes returns the NUMA nodes for a container, of the first pool that serves its requests, and whether the
// kubelet admits the container, from whichever of the pools.
func (v Views) Nodes(
	rule model.Rule, requests model.Requests, more ...model.Demand,
) (nodes model.Mask, admitted bool) {
	for i, view := range v.ForRequests(requests) {
		on, admits := rule.Nodes(append(view.Demands(requests), more...))
		if !admits {
			return 0, false
		}
		if i == 0 {
			nodes = on
		}
	}
	return nodes, true
}

// newView returns a view of devices. All GPUs are of one resource, and all VFs.
func newView(links []topology.Link, gpus, vfs []model.Device, used []string) *devicemanager.View {
	node := devicemanager.NewDevices([]model.Resource{
		{Kind: model.GPU, Devices: gpus}, {Kind: model.VF, Devices: vfs},
	})
	v := &devicemanager.View{Node: node, Links: links, Taken: node.Select(used)}
	v.Free = node.OfKind[model.GPU].Clone()
	v.Free.Include(node.OfKind[model.VF])
	v.Free.Exclude(v.Taken)
	return v
}

// NewRequests returns the requests of a container.
func NewRequests(gpus, vfs int) model.Requests {
	return model.Requests{
		{Resource: int(model.GPU), Count: gpus}, {Resource: int(model.VF), Count: vfs},
	}
}
