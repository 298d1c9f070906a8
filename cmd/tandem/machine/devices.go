// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"maps"
	"slices"

	"github.com/tandem-k8s/tandem/cmd/tandem/offer"
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
func (n *Node) GPUDevices() []offer.Device {
	var list []offer.Device
	for _, d := range n.GPUs {
		parts := n.Parts[d.Address]
		for _, part := range parts {
			list = append(list, offer.New(part.ID, part.Card, part.NUMA))
		}
		if len(parts) == 0 {
			list = append(list, newDevice(d))
		}
	}
	return list
}

func newDevice(d *topology.Device) offer.Device {
	return offer.New(d.Address.String(), d.Address, d.NUMA)
}

// VFDevices returns the VFs of a config.json, or of all NICs with RDMA if config is "". The strings are
// notes.
func (n *Node) VFDevices(config string, from *Source) ([]offer.Device, []string, error) {
	if config != "" {
		return n.selected(config, from)
	}
	pool := pools.Pool{Name: "VFs", Resource: &pools.ResourceConfig{}}
	add := func(d *topology.Device) {
		pool.Devices = append(pool.Devices, pools.Device{ID: d.Address.String(), Address: d.Address, NUMA: d.NUMA})
	}
	for _, pf := range n.RDMANICs() {
		for _, address := range pf.VFs {
			if vf, ok := n.Tree.Device(address); ok {
				add(vf)
			}
		}
		if len(pf.VFs) == 0 {
			add(pf)
		}
	}
	var list []offer.Device
	for _, d := range n.decide([]pools.Pool{pool})[0].Devices {
		list = append(list, offer.New(d.ID, d.Address, d.NUMA))
	}
	return list, nil, nil
}

// decide decides about the hints of pools as tandem-rdma does while no container has a VF.
func (n *Node) decide(found []pools.Pool) []pools.Pool {
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
	cards := model.Resource{Name: "GPUs", Kind: devicemanager.GPU}
	for _, d := range n.GPUs {
		if len(n.Parts[d.Address]) == 0 {
			cards.Devices = append(cards.Devices, model.Device{NUMA: d.NUMA, Healthy: true})
		}
	}
	if len(cards.Devices) > 0 {
		resources = append(resources, cards)
	}
	for _, name := range slices.Sorted(maps.Keys(n.mixed)) {
		one := model.Resource{Name: name, Kind: devicemanager.GPU}
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

// selected returns the devices of all pools of the configuration, without duplicates.
func (n *Node) selected(file string, from *Source) ([]offer.Device, []string, error) {
	found, notes, err := n.pools(file, from)
	if err != nil {
		return nil, nil, err
	}
	var list []offer.Device
	for _, pool := range n.decide(found) {
		if pool.Decision != "" {
			notes = append(notes, fmt.Sprintf("resource %q: %s", pool.Resource.Name, pool.Decision))
		}
		for _, d := range pool.Devices {
			vf := offer.New(d.ID, d.Address, d.NUMA)
			vf.Resource = pool.Name
			list = append(list, vf)
		}
	}
	return list, notes, nil
}

// pools returns the pools of the configuration. The strings are notes.
func (n *Node) pools(file string, from *Source) ([]pools.Pool, []string, error) {
	config, err := pools.ReadConfig(file)
	if err != nil {
		return nil, nil, err
	}
	found, warnings, err := n.finder(from).Find(config)
	if err != nil {
		return nil, nil, err
	}
	return found, append(config.Warnings, warnings...), nil
}

func (n *Node) finder(from *Source) pools.Finder {
	finder := pools.Finder{Sys: n.Sys, Prefix: "intel.com"}
	if from.Live() {
		askKernel(&finder, from.SysfsRoot)
	}
	return finder
}

// Choices returns the decision of a config.json's selectors for each of the machine's devices.
func (n *Node) Choices(file string, from *Source) ([]pools.Choice, error) {
	config, err := pools.ReadConfig(file)
	if err != nil {
		return nil, err
	}
	return n.finder(from).Explain(config)
}

// Inventory returns the machine as the DRA driver sees it, with the VFs of a config.json, or of all NICs with
// RDMA if config is "".
func (n *Node) Inventory(config string, from *Source) (pool.Machine, error) {
	var offered []pools.Pool
	var notes []string
	if config != "" {
		var err error
		if offered, notes, err = n.pools(config, from); err != nil {
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

// Pair is a GPU and a VF that form a pair, in JSON.
type Pair struct {
	GPU      string         `json:"gpu"`
	VF       string         `json:"vf"`
	Distance topology.Level `json:"distance"`
	Bridges  int            `json:"bridges"`
}

// NewPair converts a pair of package placement.
func NewPair(p placement.Pair) Pair {
	return Pair{p.GPU.ID, p.VF.ID, p.Distance.Level, p.Distance.Bridges}
}
