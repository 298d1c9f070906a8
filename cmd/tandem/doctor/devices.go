// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/topology"
)

// hardwareChecks are the checks of GPUs, VFs and the ports between them.
var hardwareChecks = []check{
	{
		id: "numa-node", severity: Warning, noun: "GPU or NIC",
		summary: "The NUMA node of %s is unknown.",
		why: "The kubelet gets these devices without a NUMA node: a container's CPUs, " +
			"and its devices of the other kind, may come from another socket.",
		fix: []string{
			"firmware with ACPI _PXM, or a hypervisor that exposes the NUMA node",
			"until then, after each boot: echo NODE > /sys/bus/pci/devices/ADDRESS/numa_node",
		},
		find: func(n *Node, f *Finding) {
			if len(n.Tree.NUMANodes()) <= 1 {
				return
			}
			for _, d := range slices.Concat(n.gpus, n.pfs) {
				if _, known := d.NUMA.Number(); !known {
					f.addSeen("/sys/bus/pci/devices/%s/numa_node: -1", d.Address)
				}
			}
		},
	},
	{
		id: "no-gpu", severity: Error,
		summary: "There is no GPU of " + gpu.Titles() + ".",
		why:     "There is nothing to pair.",
		fix:     []string{"keep the DaemonSets off this node"},
		find: func(n *Node, f *Finding) {
			f.Evidence = evidenceIf(len(n.GPUs) == 0,
				"no such display controller or accelerator in /sys/bus/pci/devices")
		},
	},
	{ // no plugin can offer them
		id: "gpu-driver", severity: Error, noun: "GPU",
		summary: "%s is not driven by " + gpu.Drivers() + ".",
		why:     "A container cannot use it, and it is not offered.",
		fix: []string{
			"modprobe " + gpu.Drivers() + ", and take the GPU from a driver for virtual machines (driver_override)",
		},
		find: func(n *Node, f *Finding) {
			for _, d := range n.gpus {
				if _, ok := driverMaker(d); !ok {
					f.addSeen("%s: driver %s", d.Address, cmp.Or(d.Driver, "none"))
				}
			}
		},
	},
	{
		id: "no-vf", severity: Error,
		summary: "There is no VF to offer.",
		why:     "No device can be paired with the GPUs.",
		find:    (*Node).findNoVF,
	},
	{
		id: "no-vfs", severity: Error, noun: "PF",
		summary: "%s near GPUs has no VFs.",
		why:     "There is no VF to offer.",
		fix: []string{
			"echo 8 > /sys/bus/pci/devices/ADDRESS/sriov_numvfs, at every start (systemd unit, " +
				"SR-IOV network operator)",
		},
		find: (*Node).findPFsWithoutVFs,
	},
	{
		id: "sriov-off", severity: Error, noun: "PF",
		summary: "%s near GPUs cannot have VFs.",
		why:     "SR-IOV is switched off in its firmware.",
		fix: []string{
			"ConnectX: mlxconfig -d ADDRESS set SRIOV_EN=1 NUM_OF_VFS=8, then restart the machine; " +
				"and SR-IOV in the BIOS",
		},
		find: func(n *Node, f *Finding) {
			if n.offersWholeNICs() {
				f.Severity, f.Why = Warning, f.Why+" "+wholeNICs
			}
			for _, pf := range n.pfs {
				if len(pf.VFs) == 0 && n.readText(pf.Address, totalVFs) == "0" {
					f.addSeen("%s (%s): sriov_totalvfs 0", pf.Address, strings.Join(pf.RDMA, ","))
				}
			}
		},
	},
	{
		id: "vf-driver", severity: Warning, noun: "VF",
		summary: "%s has no driver.",
		why:     "A VF without a driver is not in any pool and is not offered.",
		fix: []string{
			"echo ADDRESS > /sys/bus/pci/drivers/mlx5_core/bind (the driver of its PF); echo 1 > " +
				"/sys/bus/pci/devices/PF/sriov_drivers_autoprobe before VFs are made",
		},
		find: func(n *Node, f *Finding) {
			for _, vf := range n.created {
				if vf.Driver == "" {
					f.addSeen("%s of %s: no driver", vf.Address, vf.PF)
				}
			}
		},
	},
	{ // other than VFs of virtual machines
		id: "vf-rdma", severity: Warning, noun: "VF",
		summary: "%s has no RDMA device.",
		why:     "A pool with isRdma skips the function, and GPUDirect RDMA does not work with it.",
		fix: []string{
			"modprobe mlx5_ib (or the RDMA half of its driver); devlink dev param set pci/ADDRESS name enable_roce " +
				"value true cmode driverinit, then devlink dev reload",
		},
		find: func(n *Node, f *Finding) {
			for _, vf := range n.created {
				pf, _ := n.Tree.Device(vf.PF)
				if vf.Driver != "" && vf.Driver != "vfio-pci" && len(pf.RDMA) > 0 && !n.hasRDMA(vf) {
					f.addSeen("%s of %s: driver %s, no folder infiniband", vf.Address, pf.Address, vf.Driver)
				}
			}
		},
	},
	{
		id: "degraded-link", severity: Warning, noun: "PCIe link",
		summary: "%s is slower than its maximum.",
		why: "Traffic between GPU and NIC has only a fraction of the bandwidth; Tandem selects such NICs " +
			"last.",
		fix: []string{
			"reseat the card or its riser, look for AER errors (dmesg), and read current_link_speed again",
		},
		find: func(n *Node, f *Finding) {
			for _, d := range n.gpus {
				if l := d.PCIe; l.DegradedOf(true) {
					f.addSeen("GPU %s: x%d of x%d", d.Address, l.Width, l.MaxWidth)
				}
			}
			for _, d := range n.pfs {
				if l := d.PCIe; l.DegradedOf(false) {
					f.addSeen("NIC %s: %s of %s", d.Address, linkText(l.Speed, l.Width), linkText(l.MaxSpeed, l.MaxWidth))
				}
			}
		},
	},
	{ // ports that send the traffic up to the root complex and back, although GPU and NIC share the switch
		id: "acs-redirect", severity: Warning, noun: "switch port",
		summary: "%s redirects traffic between GPUs and NICs to the root complex (ACS).",
		why: "Even with a common switch, every transfer crosses the CPU's root complex: GPUDirect " +
			"RDMA is slow.",
		fix: []string{
			"on bare metal: disable ACS in the BIOS, or at each boot: setpci -s PORT ECAP_ACS+0x6.w=0000",
			"machines that pass devices to guests need ACS: use ATS and the direct translated bit instead",
		},
		find: func(n *Node, f *Finding) {
			for _, port := range n.ports {
				if port.redirects {
					f.addSeen("switch port %s: ACS redirects requests or completions", port.Address)
				}
			}
			if len(f.Evidence) > 1 {
				f.Summary = strings.Replace(f.Summary, "redirects", "redirect", 1)
			}
		},
	},
	{
		id: "acs-redirect", severity: Unknown,
		summary: "Redirection of traffic to the root complex (ACS) is unknown.",
		why:     "Redirected traffic crosses the CPU's root complex, even if the GPU and the NIC share a switch.",
		fix: []string{"run tandem doctor with CAP_SYS_ADMIN: without it only the first 64 bytes are " +
			"readable of the configuration space"},
		find: func(n *Node, f *Finding) {
			const hidden = "port %s: its configuration space is hidden beyond the first 64 bytes"
			for _, port := range n.ports {
				if port.ACS == topology.ACSUnknown && port.hasConfig {
					f.addSeen("switch "+hidden, port.Address)
				}
			}
			for _, port := range n.complexes.unread {
				f.addSeen(hidden, port)
			}
			f.Evidence = someOf(f.Evidence)
		},
	},
	{
		id: "device-nodes", severity: Error, noun: "device node",
		summary: "%s is missing.",
		why:     "Containers with the device cannot open it.",
		fix: []string{
			nodesFix(),
			"in a container: --dev-root with the node's /dev, as in --dev-root=/host/dev",
		},
		find: func(n *Node, f *Finding) { f.Evidence = n.missing },
	},
}

// findNoVF finds a node whose plugin offers no VF. [Node.findPFsWithoutVFs] finds VFs that could be made.
func (n *Node) findNoVF(f *Finding) {
	if len(n.VFs) > 0 {
		return
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
	f.Evidence, f.Fix = []string{evidence}, append(n.Pools.driverFix(), fix)
}

// findPFsWithoutVFs finds PFs without VFs. If no PF has any, and none is offered itself, nothing can be
// paired.
func (n *Node) findPFsWithoutVFs(f *Finding) {
	for _, pf := range n.pfs {
		switch total := n.readText(pf.Address, totalVFs); {
		case len(pf.VFs) > 0:
			f.Severity = Warning
			f.Why = "The GPUs on its switch have no VF there: containers with these GPUs get VFs that are " +
				"farther away."
		case total != "" && total != "0":
			f.addSeen("%s (%s): sriov_numvfs 0 of %s", pf.Address, strings.Join(pf.RDMA, ","), total)
		}
	}
	switch {
	case n.offersWholeNICs():
		f.Severity, f.Why = Warning, wholeNICs
	case n.Guess != "" && f.Severity == Error: // tandem plan counts the PFs
		f.Severity = Unknown
		f.Why = "There is no VF to offer unless the configuration selects the PFs themselves, which is unknown: " +
			n.Guess + "."
		f.Fix = append(f.Fix, configFix)
	}
	if len(n.VFs) == 0 {
		f.Fix = append(n.Pools.driverFix(), f.Fix...)
	}
}

// totalVFs is the file with the number of VFs that a PF can have.
const totalVFs = "sriov_totalvfs"

// wholeNICs is the effect of findings about missing VFs if the plugin offers all PFs themselves.
const wholeNICs = "The plugin offers these PFs themselves. Pools of whole NICs need no VFs."

// offersWholeNICs reports whether the plugin offers each PF, and thus no PF has VFs.
func (n *Node) offersWholeNICs() bool {
	return !slices.ContainsFunc(n.pfs, func(pf *topology.Device) bool {
		isOffered := func(offered model.Device) bool { return offered.Address == pf.Address }
		return n.Guess != "" || !slices.ContainsFunc(machine.Devices(n.VFs), isOffered)
	})
}

// linkText returns speed and width of a link, without an unknown speed: "32 GT/s x16".
func linkText(speed float64, width int) string {
	if speed == 0 {
		return fmt.Sprintf("x%d", width)
	}
	return fmt.Sprintf("%v GT/s x%d", speed, width)
}
