// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
)

// hardware is the part of a machine between the GPUs and the VFs.
type hardware struct {
	tree                    *topology.Tree
	offeredGPUs, offeredVFs []Device
	gpus                    []*topology.Device // functions of the GPUs, each once
	pfs                     []physicalFunction
	ports                   []switchPort
	complexes               complexes
	missing                 []string // device nodes of GPUs and VFs, and whose they are
}

// physicalFunction is a PF with RDMA or VFs, on the switch of a GPU or with VFs anywhere.
type physicalFunction struct {
	*topology.Device
	totalVFs string // the file sriov_totalvfs, "" for none
	whole    bool   // the plugin offers the PF itself
	made     []virtualFunction
}

// virtualFunction is a VF of the machine, whether a plugin offers the VF or not.
type virtualFunction struct {
	*topology.Device
	hasRDMA bool
}

// switchPort is a bridge on the way from a GPU to a VF on the same switch, outside complexes.
type switchPort struct {
	*topology.Device
	redirects bool // traffic between GPUs and NICs
	hasConfig bool // a recorded machine has no configuration space
}

func (n Node) readHardware(a *access) hardware {
	h := hardware{tree: n.Tree, offeredGPUs: n.GPUs, offeredVFs: n.VFs, complexes: n.readComplexes()}
	for _, g := range n.GPUs {
		if d, ok := n.Tree.Device(g.Address); ok && !slices.Contains(h.gpus, d) {
			h.gpus = append(h.gpus, d)
		}
	}
	for d := range n.Tree.Devices() {
		if d.IsNIC() && !d.IsVF() && (len(d.VFs) > 0 || len(d.RDMA) > 0 && h.nearGPU(d)) {
			h.pfs = append(h.pfs, n.physicalFunction(d))
		}
	}
	ports := h.portsBetween()
	for _, address := range slices.SortedFunc(maps.Keys(ports), topology.Address.Compare) {
		if d, ok := n.Tree.Device(address); ok && !h.complexes.has(address) {
			h.ports = append(h.ports, switchPort{d, ports[address], text(n.Sys, address, "config") != ""})
		}
	}
	if !n.Recorded {
		h.missing = n.missingNodes(a, h.gpus)
	}
	return h
}

// text returns a file of a PCI function, "" for none.
func text(sys fs.FS, a topology.Address, file string) string {
	content, err := fs.ReadFile(sys, path.Join(topology.PCIDevices, a.String(), file))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(content))
}

// names returns the names in a folder of a PCI function, none without the folder.
func names(sys fs.FS, a topology.Address, dir string) []string {
	return topology.Names(sys, path.Join(topology.PCIDevices, a.String(), dir))
}

func (h hardware) nearGPU(d *topology.Device) bool {
	return slices.ContainsFunc(h.offeredGPUs, func(g Device) bool {
		return h.tree.Distance(g.Address, d.Address).Level.Direct()
	})
}

// auxiliaryRDMA matches the auxiliary device through which a network driver offers RDMA: in contrast to the
// RDMA device, doctor sees the auxiliary device of a VF that a container holds.
var auxiliaryRDMA = regexp.MustCompile(`^[^.]+\.(rdma|roce|iwarp)\.\d+$`)

func (n Node) physicalFunction(d *topology.Device) physicalFunction {
	pf := physicalFunction{
		Device: d, totalVFs: text(n.Sys, d.Address, "sriov_totalvfs"),
		whole: n.Guess == "" && slices.ContainsFunc(n.VFs, func(offered Device) bool {
			return offered.Address == d.Address
		}),
	}
	for _, address := range d.VFs {
		if vf, ok := n.Tree.Device(address); ok {
			hasRDMA := len(vf.RDMA) > 0 || slices.ContainsFunc(names(n.Sys, address, ""), auxiliaryRDMA.MatchString)
			pf.made = append(pf.made, virtualFunction{vf, hasRDMA})
		}
	}
	return pf
}

// portsBetween returns the ports between GPUs and VFs that share a switch, and whether each redirects.
func (h hardware) portsBetween() map[topology.Address]bool {
	ports := map[topology.Address]bool{}
	for _, g := range h.offeredGPUs {
		for _, vf := range h.offeredVFs {
			if h.tree.Distance(g.Address, vf.Address).Level.Direct() {
				for _, port := range h.tree.Ports(g.Address, vf.Address) {
					ports[port.Address] = ports[port.Address] || port.Redirects
				}
			}
		}
	}
	return ports
}

// missingNodes returns the device nodes that a container is given and the node does not have.
func (n Node) missingNodes(a *access, gpus []*topology.Device) (missing []string) {
	want := func(node, whose string) {
		file := path.Join(n.DevRoot, node)
		if _, err := os.Lstat(file); err != nil && !a.denied(file, err) {
			missing = append(missing, "/dev/"+node+" of "+whose)
		}
	}
	for _, d := range gpus {
		v, ok := driving(d)
		if !ok {
			continue
		}
		want(v.control, "all "+v.title+" GPUs")
		for _, name := range names(n.Sys, d.Address, "drm") {
			if v.render && strings.HasPrefix(name, "renderD") {
				want("dri/"+name, "GPU "+d.Address.String())
			}
		}
	}
	for _, vf := range n.VFs {
		for _, name := range names(n.Sys, vf.Address, "infiniband_verbs") {
			want("infiniband/"+name, "VF "+vf.Address.String())
			want("infiniband/rdma_cm", "all RDMA devices")
		}
	}
	slices.Sort(missing)
	return slices.Compact(missing)
}
