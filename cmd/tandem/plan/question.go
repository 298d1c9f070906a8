// SPDX-License-Identifier: Apache-2.0

// Package plan predicts the plugins' preferred GPUs and VFs for a container.
package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/tandem/document"
	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/cmd/tandem/offer"
	"github.com/tandem-k8s/tandem/coordination/kubelet/devicemanager"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/coordination/spelling"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

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
	"kubelet does not start without the option max-allowable-numa-nodes", hints.MaxNodes)

// Answer plans for a machine as the coordinator does for a call of the kubelet. The strings are notes.
func (q *Question) Answer(n *machine.Node, from *machine.Source) (*Plan, []string, error) {
	gpus, vfs, notes, err := q.devices(n, from)
	if err != nil {
		return nil, nil, err
	}
	views := offer.NewViews(n.Links, gpus, vfs)
	view, requests := views.All, offer.Requests(int(q.GPUs), int(q.VFs))
	manager, err := topologyManager(n)
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
	if slow := newMerge(n).note(view, requests); slow != "" {
		remarks = append(remarks, slow)
	}
	if len(remarks) > 0 && q.Config == "" && q.VFs > 0 {
		remarks = append(remarks, assumed)
	}
	p.Note = strings.Join(remarks, "; ")
	return p, notes, nil
}

// topologyManager returns the Topology Manager of a machine's kubelet.
func topologyManager(n *machine.Node) (devicemanager.Kubelet, error) {
	return n.Kubelet.TopologyManager(model.ReadNUMANodes(n.Sys, n.Tree.NUMANodes()))
}

// devices returns the machine's devices, with those in use marked, and notes. It is an error if too few are
// free.
func (q *Question) devices(n *machine.Node, from *machine.Source) (
	gpus, vfs []offer.Device, notes []string, err error,
) {
	gpus = n.GPUDevices()
	if vfs, notes, err = n.VFDevices(q.Config, from); err != nil {
		return nil, nil, nil, err
	}
	if err := q.mark(gpus, vfs); err != nil {
		return nil, nil, nil, err
	}
	if g, v := uint(len(free(gpus))), uint(len(free(vfs))); g < q.GPUs || v < q.VFs {
		why := ""
		if v < q.VFs && q.Config != "" {
			why = fmt.Sprintf("; tandem doctor --config %s shows why each selector rejects devices", q.Config)
		}
		return nil, nil, nil, fmt.Errorf("choose %s and %s: %s and %s are free%s", document.Count(q.GPUs, "GPU"),
			document.Count(q.VFs, "VF"), document.Count(g, "GPU"), document.Count(v, "VF"), why)
	}
	return gpus, vfs, notes, nil
}

// free returns the devices that are not in use.
func free(list []offer.Device) []placement.Device {
	var devices []placement.Device
	for _, d := range list {
		if !d.Used {
			devices = append(devices, d.Device)
		}
	}
	return devices
}

func planOf(c placement.Choice, nodes []int) *Plan {
	p := &Plan{GPUs: []string{}, VFs: []string{}, Pairs: []machine.Pair{}, Nodes: []int{}, Reason: c.Reason}
	p.Nodes = append(p.Nodes, nodes...)
	for _, d := range c.GPUs {
		p.GPUs = append(p.GPUs, d.ID)
	}
	for _, d := range c.VFs {
		p.VFs = append(p.VFs, d.ID)
	}
	for _, pair := range c.Pairs {
		p.Pairs = append(p.Pairs, machine.NewPair(pair))
	}
	return p
}

// mark marks the used devices. IDs may be addresses in any form of [canonical].
func (q *Question) mark(gpus, vfs []offer.Device) error {
	byID := map[string]*offer.Device{}
	for _, list := range [][]offer.Device{gpus, vfs} {
		for i := range list {
			byID[list[i].ID] = &list[i]
		}
	}
	for _, id := range q.Used {
		d, ok := byID[canonical(strings.TrimSpace(id))]
		if !ok {
			return fmt.Errorf("mark %q as used: no such GPU or VF%s", id, similar(id, byID))
		}
		d.Used = true
	}
	return nil
}

// similar asks for the device that a misspelled ID probably means. An address is well spelled.
func similar(id string, devices map[string]*offer.Device) string {
	if _, err := topology.ParseAddress(canonical(id)); err == nil {
		return ""
	}
	return spelling.Question(id, slices.Sorted(maps.Keys(devices)))
}

// canonical returns an address in the kernel's form; lspci omits the domain on machines with a single one.
// Other IDs stay unchanged.
func canonical(id string) string {
	for _, domain := range []string{"", "0000:"} {
		if a, err := topology.ParseAddress(domain + id); err == nil {
			return a.String()
		}
	}
	return id
}
