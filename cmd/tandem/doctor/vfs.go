// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
)

// nothingOffered: without VFs there are no pairs. Where they could be made, that is found apart.
func (e *examination) nothingOffered() {
	if len(e.VFs) > 0 {
		return
	}
	evidence := "no NIC with RDMA in /sys/class/infiniband"
	for d := range e.Tree.Devices() {
		if d.Class.IsNetwork() && len(d.RDMA) > 0 {
			evidence = "there are NICs with RDMA, and the configuration of the pools selects none of their functions"
		}
	}
	e.find(Finding{
		ID: "no-vf", Severity: Error,
		Summary:  "There is no VF to offer.",
		Evidence: []string{evidence},
		Why:      "There is nothing to pair the GPUs with.",
		Fix: []string{
			"load the RDMA driver of the NIC, make VFs (sriov_numvfs), and select them in config.json",
		},
	})
}

// auxiliaryRDMA names the auxiliary device through which a network driver offers RDMA; that of a VF in a
// container can still be seen.
var auxiliaryRDMA = regexp.MustCompile(`^[^.]+\.(rdma|roce|iwarp)\.\d+$`)

func (e *examination) hasRDMA(d *topology.Device) bool {
	entries, _ := fs.ReadDir(e.Sys, path.Join(pciDevices, d.Address.String())) // it was there a moment ago
	return len(d.RDMA) > 0 || slices.ContainsFunc(entries, func(f fs.DirEntry) bool {
		return auxiliaryRDMA.MatchString(f.Name())
	})
}

// virtualFunctions: VFs that are not created, not bound to a driver, or without RDMA.
func (e *examination) virtualFunctions() {
	var without, off, unbound, noRDMA []string
	some := 0
	for _, pf := range e.ports() {
		total := e.text(pf.Address, "sriov_totalvfs")
		switch {
		case len(pf.VFs) > 0:
			some++
		case total == "0":
			off = append(off, fmt.Sprintf("%s (%s): sriov_totalvfs 0", pf.Address, strings.Join(pf.RDMA, ",")))
		case total != "":
			without = append(without,
				fmt.Sprintf("%s (%s): sriov_numvfs 0 of %s", pf.Address, strings.Join(pf.RDMA, ","), total))
		}
		for _, address := range pf.VFs {
			vf, ok := e.Tree.Device(address)
			switch {
			case !ok:
			case vf.Driver == "":
				unbound = append(unbound, fmt.Sprintf("%s of %s: no driver", vf.Address, pf.Address))
			case vf.Driver != "vfio-pci" && len(pf.RDMA) > 0 && !e.hasRDMA(vf):
				noRDMA = append(noRDMA,
					fmt.Sprintf("%s of %s: driver %s, no folder infiniband", vf.Address, pf.Address, vf.Driver))
			}
		}
	}
	e.notCreated(without, some)
	e.vfFinding("sriov-off", Error, off, "PF near GPUs cannot have VFs",
		"SR-IOV is switched off in its firmware.",
		"ConnectX: mlxconfig -d ADDRESS set SRIOV_EN=1 NUM_OF_VFS=8, then restart the machine; "+
			"and SR-IOV in the BIOS")
	e.vfFinding("vf-driver", Warning, unbound, "VF has no driver",
		"Pools do not take a VF without a driver: it is not offered.",
		"echo ADDRESS > /sys/bus/pci/drivers/mlx5_core/bind (the driver of its PF); echo 1 > "+
			"/sys/bus/pci/devices/PF/sriov_drivers_autoprobe before VFs are made")
	e.vfFinding("vf-rdma", Warning, noRDMA, "VF has no RDMA device",
		"A pool with isRdma leaves it out, and GPUDirect RDMA does not work on it.",
		"modprobe mlx5_ib (or the RDMA half of its driver); devlink dev param set pci/ADDRESS name enable_roce "+
			"value true cmode driverinit, then devlink dev reload")
}

func (e *examination) notCreated(list []string, others int) {
	severity := Warning
	why := "The GPUs on its switch have no VF of their own: containers with these GPUs get VFs that are " +
		"farther away."
	if others == 0 {
		severity, why = Error, "There is no VF to offer."
	}
	e.vfFinding("no-vfs", severity, list, "PF near GPUs has no VFs", why,
		"echo 1 > /sys/bus/pci/devices/ADDRESS/sriov_numvfs, at every start (systemd unit, "+
			"SR-IOV network operator)")
}

func (e *examination) vfFinding(id string, severity Severity, list []string, what, why, fix string) {
	subject, rest, _ := strings.Cut(what, " ")
	if len(list) > 1 {
		subject += "s"
		rest = strings.Replace(strings.Replace(rest, "has ", "have ", 1), "its switch", "their switches", 1)
	}
	e.findIn(list, Finding{
		ID: id, Severity: severity,
		Summary: fmt.Sprintf("%d %s %s.", len(list), subject, rest),
		Why:     why, Fix: []string{fix},
	})
}
