// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/topology"
)

// hardware is the part of a machine between the GPUs and the VFs.
type hardware struct {
	gpus    []*topology.Device // functions of the GPUs, each once
	pfs     []*topology.Device // with RDMA or VFs: on the switch of a GPU, or with VFs anywhere
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
		if d.IsNIC() && !d.IsVF() && (len(d.VFs) > 0 || len(d.RDMA) > 0 && n.hasNearGPU(d)) {
			n.pfs = append(n.pfs, d)
		}
	}
	ports := n.portsBetween()
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
	return slices.ContainsFunc(n.GPUs, func(g Device) bool {
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

// createdVFs lists the VFs of the PFs that a condition selects, whether a plugin offers them or not.
func (n *Node) createdVFs(describe func(pf, vf *topology.Device) string) (list []string) {
	for _, pf := range n.pfs {
		for _, address := range pf.VFs {
			if vf, ok := n.Tree.Device(address); ok {
				list = append(list, evidenceOf(describe(pf, vf))...)
			}
		}
	}
	return list
}

// totalVFs returns the file sriov_totalvfs of a PF, "" for none.
func (n *Node) totalVFs(pf *topology.Device) string {
	return n.readText(pf.Address, "sriov_totalvfs")
}

// portsBetween returns the ports between GPUs and VFs that share a switch, and whether each redirects.
func (n *Node) portsBetween() map[topology.Address]bool {
	ports := map[topology.Address]bool{}
	for _, g := range n.GPUs {
		for _, vf := range n.VFs {
			if n.Tree.Distance(g.Address, vf.Address).Level.Direct() {
				for _, port := range n.Tree.Ports(g.Address, vf.Address) {
					ports[port.Address] = ports[port.Address] || port.Redirects
				}
			}
		}
	}
	return ports
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
	for _, vf := range n.VFs {
		for _, name := range n.listNames(vf.Address, "infiniband_verbs") {
			want("infiniband/"+name, "VF "+vf.Address.String())
			want("infiniband/rdma_cm", "all RDMA devices")
		}
	}
	slices.Sort(missing)
	return slices.Compact(missing)
}

// noVF finds a node whose plugin offers no VF. [notCreated] finds VFs that could be made.
func noVF(n *Node) []Finding {
	if len(n.VFs) > 0 {
		return nil
	}
	evidence := "no NIC with RDMA in /sys/class/infiniband"
	fix := "load the RDMA driver of the NIC, make VFs (sriov_numvfs), and select them in config.json"
	for d := range n.Tree.Devices() {
		if d.IsNIC() && len(d.RDMA) > 0 {
			evidence = "there are NICs with RDMA, and the configuration of the pools selects none of their functions"
			fix = "correct the selectors in config.json (tandem doctor --config FILE lists what each rejects), or " +
				"make VFs (sriov_numvfs)"
		}
	}
	return []Finding{{
		ID: "no-vf", Severity: Error,
		Summary:  "There is no VF to offer.",
		Evidence: []string{evidence},
		Why:      "No device can be paired with the GPUs.",
		Fix:      append(n.Pools.driverFix(), fix),
	}}
}

// wholeNICs is the effect of findings about missing VFs if the plugin offers all PFs themselves.
const wholeNICs = "The plugin offers these PFs themselves. Pools of whole NICs need no VFs."

// offersWholeNICs reports whether the plugin offers each PF, and thus no PF has VFs.
func (n *Node) offersWholeNICs() bool {
	return !slices.ContainsFunc(n.pfs, func(pf *topology.Device) bool {
		isOffered := func(offered Device) bool { return offered.Address == pf.Address }
		return n.Guess != "" || !slices.ContainsFunc(n.VFs, isOffered)
	})
}

// notCreated finds PFs without VFs. If no PF has any, and none is offered itself, nothing can be paired.
func notCreated(n *Node) []Finding {
	severity, why := Error, "There is no VF to offer."
	var list []string
	for _, pf := range n.pfs {
		switch {
		case len(pf.VFs) > 0:
			severity = Warning
			why = "The GPUs on its switch have no VF there: containers with these GPUs get VFs that are " +
				"farther away."
		case n.totalVFs(pf) != "" && n.totalVFs(pf) != "0":
			list = append(list, fmt.Sprintf("%s (%s): sriov_numvfs 0 of %s", pf.Address, strings.Join(pf.RDMA, ","),
				n.totalVFs(pf)))
		}
	}
	if n.offersWholeNICs() {
		severity, why = Warning, wholeNICs
	}
	found := vfFinding("no-vfs", severity, list, "PF near GPUs has no VFs", why,
		"echo 1 > /sys/bus/pci/devices/ADDRESS/sriov_numvfs, at every start (systemd unit, "+
			"SR-IOV network operator)")
	if len(n.VFs) == 0 {
		found[0].Fix = append(n.Pools.driverFix(), found[0].Fix...)
	}
	return found
}

// sriovOff finds PFs whose firmware makes no VFs.
func sriovOff(n *Node) []Finding {
	severity, why := Error, "SR-IOV is switched off in its firmware."
	if n.offersWholeNICs() {
		severity, why = Warning, why+" "+wholeNICs
	}
	var list []string
	for _, pf := range n.pfs {
		if len(pf.VFs) == 0 && n.totalVFs(pf) == "0" {
			list = append(list, fmt.Sprintf("%s (%s): sriov_totalvfs 0", pf.Address, strings.Join(pf.RDMA, ",")))
		}
	}
	return vfFinding("sriov-off", severity, list, "PF near GPUs cannot have VFs", why,
		"ConnectX: mlxconfig -d ADDRESS set SRIOV_EN=1 NUM_OF_VFS=8, then restart the machine; "+
			"and SR-IOV in the BIOS")
}

// findUnbound finds VFs without a driver.
func findUnbound(n *Node) []Finding {
	list := n.createdVFs(func(pf, vf *topology.Device) string {
		if vf.Driver != "" {
			return ""
		}
		return fmt.Sprintf("%s of %s: no driver", vf.Address, pf.Address)
	})
	return vfFinding("vf-driver", Warning, list, "VF has no driver",
		"A VF without a driver is not in any pool and is not offered.",
		"echo ADDRESS > /sys/bus/pci/drivers/mlx5_core/bind (the driver of its PF); echo 1 > "+
			"/sys/bus/pci/devices/PF/sriov_drivers_autoprobe before VFs are made")
}

// withoutRDMA finds VFs without RDMA of PFs with RDMA, other than VFs of virtual machines.
func withoutRDMA(n *Node) []Finding {
	list := n.createdVFs(func(pf, vf *topology.Device) string {
		if vf.Driver == "" || vf.Driver == "vfio-pci" || len(pf.RDMA) == 0 || n.hasRDMA(vf) {
			return ""
		}
		return fmt.Sprintf("%s of %s: driver %s, no folder infiniband", vf.Address, pf.Address, vf.Driver)
	})
	return vfFinding("vf-rdma", Warning, list, "VF has no RDMA device",
		"A pool with isRdma skips the function, and GPUDirect RDMA does not work with it.",
		"modprobe mlx5_ib (or the RDMA half of its driver); devlink dev param set pci/ADDRESS name enable_roce "+
			"value true cmode driverinit, then devlink dev reload")
}

// vfFinding returns a finding about several PFs or VFs, with the problem of one in the plural.
func vfFinding(id string, severity Severity, list []string, problem, why, fix string) []Finding {
	subject, rest, _ := strings.Cut(problem, " ")
	if len(list) > 1 {
		subject += "s"
		rest = strings.Replace(rest, "has ", "have ", 1)
	}
	return []Finding{{
		ID: id, Severity: severity,
		Summary:  fmt.Sprintf("%d %s %s.", len(list), subject, rest),
		Evidence: someOf(list),
		Why:      why, Fix: []string{fix},
	}}
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
	i := slices.IndexFunc(gpu.Makers, func(m gpu.Maker) bool { return m.Driver == d.Driver })
	if i < 0 {
		return gpu.Maker{}, false
	}
	return gpu.Makers[i], true
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
