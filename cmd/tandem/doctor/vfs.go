// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/finding"
)

// noVF finds a node whose plugin offers no VF. [notCreated] finds VFs that could be made.
func noVF(h hardware) []Finding {
	if len(h.offeredVFs) > 0 {
		return nil
	}
	evidence := "no NIC with RDMA in /sys/class/infiniband"
	for d := range h.tree.Devices() {
		if d.IsNIC() && len(d.RDMA) > 0 {
			evidence = "there are NICs with RDMA, and the configuration of the pools selects none of their functions"
		}
	}
	return []Finding{{
		ID: "no-vf", Severity: Error,
		Summary:  "There is no VF to offer.",
		Evidence: []string{evidence},
		Why:      "No device can be paired with the GPUs.",
		Fix: []string{
			"load the RDMA driver of the NIC, make VFs (sriov_numvfs), and select them in config.json",
		},
	}}
}

// wholeNICs is the effect of findings about missing VFs if the plugin offers all PFs themselves.
const wholeNICs = "The plugin offers these PFs themselves. Pools of whole NICs need no VFs."

// offersWholeNICs reports whether the plugin offers each PF, and thus no PF has VFs.
func (h hardware) offersWholeNICs() bool {
	return !slices.ContainsFunc(h.pfs, func(pf physicalFunction) bool { return !pf.whole })
}

// notCreated finds PFs without VFs. If no PF has any, and none is offered itself, nothing can be paired.
func notCreated(h hardware) []Finding {
	severity, why := Error, "There is no VF to offer."
	var list []string
	for _, pf := range h.pfs {
		switch {
		case len(pf.VFs) > 0:
			severity = Warning
			why = "The GPUs on its switch have no VF there: containers with these GPUs get VFs that are " +
				"farther away."
		case pf.totalVFs != "" && pf.totalVFs != "0":
			list = append(list, fmt.Sprintf("%s (%s): sriov_numvfs 0 of %s", pf.Address, strings.Join(pf.RDMA, ","),
				pf.totalVFs))
		}
	}
	if h.offersWholeNICs() {
		severity, why = Warning, wholeNICs
	}
	return vfFinding("no-vfs", severity, list, "PF near GPUs has no VFs", why,
		"echo 1 > /sys/bus/pci/devices/ADDRESS/sriov_numvfs, at every start (systemd unit, "+
			"SR-IOV network operator)")
}

// sriovOff finds PFs whose firmware makes no VFs.
func sriovOff(h hardware) []Finding {
	severity, why := Error, "SR-IOV is switched off in its firmware."
	if h.offersWholeNICs() {
		severity, why = Warning, why+" "+wholeNICs
	}
	var list []string
	for _, pf := range h.pfs {
		if len(pf.VFs) == 0 && pf.totalVFs == "0" {
			list = append(list, fmt.Sprintf("%s (%s): sriov_totalvfs 0", pf.Address, strings.Join(pf.RDMA, ",")))
		}
	}
	return vfFinding("sriov-off", severity, list, "PF near GPUs cannot have VFs", why,
		"ConnectX: mlxconfig -d ADDRESS set SRIOV_EN=1 NUM_OF_VFS=8, then restart the machine; "+
			"and SR-IOV in the BIOS")
}

// unbound finds VFs without a driver.
func unbound(h hardware) []Finding {
	var list []string
	for _, pf := range h.pfs {
		for _, vf := range pf.made {
			if vf.Driver == "" {
				list = append(list, fmt.Sprintf("%s of %s: no driver", vf.Address, pf.Address))
			}
		}
	}
	return vfFinding("vf-driver", Warning, list, "VF has no driver",
		"A VF without a driver is not in any pool and is not offered.",
		"echo ADDRESS > /sys/bus/pci/drivers/mlx5_core/bind (the driver of its PF); echo 1 > "+
			"/sys/bus/pci/devices/PF/sriov_drivers_autoprobe before VFs are made")
}

// withoutRDMA finds VFs without RDMA of PFs with RDMA, other than VFs of virtual machines.
func withoutRDMA(h hardware) []Finding {
	var list []string
	for _, pf := range h.pfs {
		for _, vf := range pf.made {
			if vf.Driver != "" && vf.Driver != "vfio-pci" && len(pf.RDMA) > 0 && !vf.hasRDMA {
				list = append(list,
					fmt.Sprintf("%s of %s: driver %s, no folder infiniband", vf.Address, pf.Address, vf.Driver))
			}
		}
	}
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
	return finding.OfSome(list, Finding{
		ID: id, Severity: severity,
		Summary: fmt.Sprintf("%d %s %s.", len(list), subject, rest),
		Why:     why, Fix: []string{fix},
	})
}
