// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/topology"
)

// hardware is the part of a machine between the GPUs and the VFs.
type hardware struct {
	gpus    []*topology.Device // functions of the GPUs, each once
	pfs     []*topology.Device // with RDMA or VFs: on the switch of a GPU, or with VFs anywhere
	created []*topology.Device // VFs of the PFs, whether a plugin offers them or not
	ports   []switchPort
	missing []string // device nodes of GPUs and VFs, and whose they are
}

// switchPort is a bridge on the way from a GPU to a VF on the same switch, outside complexes.
type switchPort struct {
	*topology.Device
	redirects bool // traffic between GPUs and NICs
	hasConfig bool // a recorded machine has no configuration space
}

// readHardware reads the hardware and the complexes.
func (n *Node) readHardware() {
	n.complexes = n.readComplexes()
	for _, g := range n.GPUs {
		if d, ok := n.Tree.Device(g.Address); ok && !slices.Contains(n.gpus, d) {
			n.gpus = append(n.gpus, d)
		}
	}
	for d := range n.Tree.Devices() {
		if !d.IsNIC() || d.IsVF() || len(d.VFs) == 0 && (len(d.RDMA) == 0 || !n.hasNearGPU(d)) {
			continue
		}
		n.pfs = append(n.pfs, d)
		for _, address := range d.VFs {
			if vf, ok := n.Tree.Device(address); ok {
				n.created = append(n.created, vf)
			}
		}
	}
	ports := map[topology.Address]bool{} // between GPUs and VFs that share a switch; whether each redirects
	for _, g := range n.GPUs {
		for _, vf := range machine.Devices(n.VFs) {
			if n.Tree.Distance(g.Address, vf.Address).Level.Direct() {
				for _, port := range n.Tree.Ports(g.Address, vf.Address) {
					ports[port.Address] = ports[port.Address] || port.Redirects
				}
			}
		}
	}
	for _, address := range slices.SortedFunc(maps.Keys(ports), topology.Address.Compare) {
		if d, ok := n.Tree.Device(address); ok && !n.complexes.hasPort(address) {
			n.ports = append(n.ports, switchPort{d, ports[address], n.readText(address, "config") != ""})
		}
	}
	if !n.Recorded {
		n.missing = n.missingNodes()
	}
}

// listNames returns the names in a folder of a PCI function, none without the folder.
func (n *Node) listNames(a topology.Address, dir string) []string {
	return topology.Names(n.Sys, pools.FunctionFile(a, "", dir))
}

// readText returns a file of a PCI function, "" for none.
func (n *Node) readText(a topology.Address, file string) string {
	return pools.ReadText(n.Sys, pools.FunctionFile(a, "", file))
}

func (n *Node) hasNearGPU(d *topology.Device) bool {
	return slices.ContainsFunc(n.GPUs, func(g model.Device) bool {
		return n.Tree.Distance(g.Address, d.Address).Level.Direct()
	})
}

// auxiliaryRDMA matches the auxiliary device through which a network driver offers RDMA: in contrast to the
// RDMA device, doctor sees the auxiliary device of a VF that a container holds.
var auxiliaryRDMA = regexp.MustCompile(`^[^.]+\.(rdma|roce|iwarp)\.\d+$`)

// hasRDMA reports whether a VF has RDMA, in a container too.
func (n *Node) hasRDMA(vf *topology.Device) bool {
	return len(vf.RDMA) > 0 || slices.ContainsFunc(n.listNames(vf.Address, ""), auxiliaryRDMA.MatchString)
}

// missingNodes returns the device nodes that a container is given and the node does not have.
func (n *Node) missingNodes() (missing []string) {
	want := func(node, whose string) {
		file := path.Join(n.DevRoot, node)
		if _, err := os.Lstat(file); err != nil && !n.noteDenied(file, err) {
			missing = append(missing, "/dev/"+node+" of "+whose)
		}
	}
	for _, d := range n.gpus {
		maker, ok := driverMaker(d)
		if !ok {
			continue
		}
		v := vendors[maker.Vendor]
		want(v.control, "all "+maker.Title+" GPUs")
		for _, name := range n.listNames(d.Address, "drm") {
			if v.render && strings.HasPrefix(name, "renderD") {
				want("dri/"+name, "GPU "+d.Address.String())
			}
		}
	}
	for _, vf := range machine.Devices(n.VFs) {
		for _, name := range n.listNames(vf.Address, "infiniband_verbs") {
			want("infiniband/"+name, "VF "+vf.Address.String())
			want("infiniband/rdma_cm", "all RDMA devices")
		}
	}
	slices.Sort(missing)
	return slices.Compact(missing)
}

// vendor is what an examination looks at of the driver and the own device plugin of a maker of GPUs.
type vendor struct {
	control string // device node that all of its GPUs share
	render  bool   // each GPU has a render node
	maker   string // program that makes the device nodes; "" if the driver does
	// whether a socket in the kubelet's folder is that of the vendor's own device plugin
	socket func(name string) bool
}

// vendors has a row for each of [gpu.Makers].
var vendors = map[string]vendor{
	gpu.AMD: {
		control: "kfd", render: true,
		// kubevirt's device-plugin-manager: no suffix
		socket: func(name string) bool { return strings.HasPrefix(name, "amd.com_") },
	},
	gpu.NVIDIA: {
		control: "nvidiactl", maker: "nvidia-modprobe",
		// internal/plugin/server.go there
		socket: func(name string) bool { return strings.HasPrefix(name, "nvidia-") && path.Ext(name) == ".sock" },
	},
}

// driverMaker returns the maker whose driver has a GPU; false where another driver has it, or none.
func driverMaker(d *topology.Device) (gpu.Maker, bool) {
	for _, m := range gpu.Makers {
		if m.Driver == d.Driver {
			return m, true
		}
	}
	return gpu.Maker{}, false
}

// nodesFix returns the remedy for missing device nodes: the modules to load, and the programs that make
// nodes.
func nodesFix() string {
	var modules []string
	var makers strings.Builder
	for _, m := range gpu.Makers {
		modules = append(modules, m.Driver)
		if program := vendors[m.Vendor].maker; program != "" {
			makers.WriteString("; " + m.Title + "'s nodes are created by " + program)
		}
	}
	modules = append(modules, "ib_uverbs")
	return "modprobe the node's module (" + strings.Join(modules, ", ") + " or rdma_ucm)" + makers.String()
}
