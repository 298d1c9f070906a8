package doctor

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
)

const pciDevices = "bus/pci/devices"

// text reads a file of a PCI function, "" where there is none.
func (e *examination) text(a topology.Address, file string) string {
	content, err := fs.ReadFile(e.Sys, path.Join(pciDevices, a.String(), file))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(content))
}

// cards are the PCI functions of the GPUs, each once.
func (e *examination) cards() []*topology.Device {
	var list []*topology.Device
	for _, g := range e.GPUs {
		if d, ok := e.Tree.Device(g.Address); ok && !slices.Contains(list, d) {
			list = append(list, d)
		}
	}
	return list
}

// ports are the PFs that matter: those with RDMA or with VFs, on the switch of a GPU or with VFs anywhere.
func (e *examination) ports() []*topology.Device {
	var list []*topology.Device
	for d := range e.Tree.Devices() {
		if d.Class.IsNetwork() && !d.IsVF() && (len(d.VFs) > 0 || len(d.RDMA) > 0 && e.nearGPU(d)) {
			list = append(list, d)
		}
	}
	return list
}

func (e *examination) nearGPU(d *topology.Device) bool {
	return slices.ContainsFunc(e.GPUs, func(g Device) bool { return e.Tree.Distance(g.Address, d.Address).Level.SameSwitch() })
}

// unknownNodes: on a machine with one node there is nothing to know.
func (e *examination) unknownNodes() {
	if len(e.Tree.NUMANodes()) <= 1 {
		return
	}
	var list []string
	for _, d := range slices.Concat(e.cards(), e.ports()) {
		if _, known := d.NUMA.Number(); !known {
			list = append(list, fmt.Sprintf("/sys/bus/pci/devices/%s/numa_node: -1", d.Address))
		}
	}
	if len(list) == 0 {
		return
	}
	e.find(Finding{
		ID: "numa-node", Severity: Warning,
		Summary:  fmt.Sprintf("The NUMA node of %s is unknown.", count(len(list), "GPU or NIC")),
		Evidence: some(list),
		Why:      "They are offered to the kubelet without a node: a container's CPUs, and the other half of its devices, may come from another socket.",
		Fix: []string{
			"a firmware that tells it (ACPI _PXM), or a hypervisor that passes it on",
			"until then, after every start: echo NODE > /sys/bus/pci/devices/ADDRESS/numa_node",
		},
	})
}

// gpuDrivers: a GPU without its vendor's driver cannot be offered.
func (e *examination) gpuDrivers() {
	if len(e.GPUs) == 0 {
		e.find(Finding{
			ID: "no-gpu", Severity: Error,
			Summary:  "There is no GPU of AMD or NVIDIA.",
			Evidence: []string{"no such display controller or accelerator in /sys/bus/pci/devices"},
			Why:      "There is nothing to pair.",
			Fix:      []string{"keep the DaemonSets off this node"},
		})
	}
	var list []string
	for _, d := range e.cards() {
		if d.Driver != "amdgpu" && d.Driver != "nvidia" {
			list = append(list, fmt.Sprintf("%s: driver %s", d.Address, orNone(d.Driver)))
		}
	}
	if len(list) > 0 {
		e.find(Finding{
			ID: "gpu-driver", Severity: Error,
			Summary:  fmt.Sprintf("%s not driven by amdgpu or nvidia.", isAre(len(list), "GPU")),
			Evidence: some(list),
			Why:      "A container cannot use it, and it is not offered.",
			Fix:      []string{"modprobe amdgpu (or nvidia), and take the GPU from a driver for virtual machines (driver_override)"},
		})
	}
}

func orNone(name string) string {
	if name == "" {
		return "none"
	}
	return name
}

func isAre(n int, what string) string {
	if n == 1 {
		return "1 " + what + " is"
	}
	return fmt.Sprintf("%d %ss are", n, what)
}

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
		Fix:      []string{"load the RDMA driver of the NIC, make VFs (sriov_numvfs), and select them in config.json"},
	})
}

// auxiliaryRDMA names the auxiliary device through which a network driver offers RDMA; that of a VF in a container can still be seen.
var auxiliaryRDMA = regexp.MustCompile(`^[^.]+\.(rdma|roce|iwarp)\.\d+$`)

func (e *examination) hasRDMA(d *topology.Device) bool {
	entries, _ := fs.ReadDir(e.Sys, path.Join(pciDevices, d.Address.String())) // it was there a moment ago
	return len(d.RDMA) > 0 || slices.ContainsFunc(entries, func(f fs.DirEntry) bool { return auxiliaryRDMA.MatchString(f.Name()) })
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
			without = append(without, fmt.Sprintf("%s (%s): sriov_numvfs 0 of %s", pf.Address, strings.Join(pf.RDMA, ","), total))
		}
		for _, address := range pf.VFs {
			vf, ok := e.Tree.Device(address)
			switch {
			case !ok:
			case vf.Driver == "":
				unbound = append(unbound, fmt.Sprintf("%s of %s: no driver", vf.Address, pf.Address))
			case vf.Driver != "vfio-pci" && len(pf.RDMA) > 0 && !e.hasRDMA(vf):
				noRDMA = append(noRDMA, fmt.Sprintf("%s of %s: driver %s, no folder infiniband", vf.Address, pf.Address, vf.Driver))
			}
		}
	}
	e.notCreated(without, some)
	e.vfFinding("sriov-off", Error, off, "PF near GPUs cannot have VFs", "SR-IOV is switched off in its firmware.",
		"ConnectX: mlxconfig -d ADDRESS set SRIOV_EN=1 NUM_OF_VFS=8, then restart the machine; and SR-IOV in the BIOS")
	e.vfFinding("vf-driver", Warning, unbound, "VF has no driver", "Pools do not take a VF without a driver: it is not offered.",
		"echo ADDRESS > /sys/bus/pci/drivers/mlx5_core/bind (the driver of its PF); echo 1 > /sys/bus/pci/devices/PF/sriov_drivers_autoprobe before VFs are made")
	e.vfFinding("vf-rdma", Warning, noRDMA, "VF has no RDMA device", "A pool with isRdma leaves it out, and GPUDirect RDMA does not work on it.",
		"modprobe mlx5_ib (or the RDMA half of its driver); devlink dev param set pci/ADDRESS name enable_roce value true cmode driverinit, then devlink dev reload")
}

func (e *examination) notCreated(list []string, others int) {
	severity := Warning
	why := "The GPUs on its switch have no VF of their own: containers with these GPUs get VFs that are farther away."
	if others == 0 {
		severity, why = Error, "There is no VF to offer."
	}
	e.vfFinding("no-vfs", severity, list, "PF near GPUs has no VFs", why,
		"echo 1 > /sys/bus/pci/devices/ADDRESS/sriov_numvfs, at every start (systemd unit, SR-IOV network operator)")
}

func (e *examination) vfFinding(id string, severity Severity, list []string, what, why, fix string) {
	if len(list) == 0 {
		return
	}
	subject, rest, _ := strings.Cut(what, " ")
	if len(list) > 1 {
		subject += "s"
		rest = strings.Replace(strings.Replace(rest, "has ", "have ", 1), "its switch", "their switches", 1)
	}
	e.find(Finding{
		ID: id, Severity: severity,
		Summary:  fmt.Sprintf("%d %s %s.", len(list), subject, rest),
		Evidence: some(list), Why: why, Fix: []string{fix},
	})
}

// links: a GPU saves power by a slower link while it is idle, so that of GPUs the width alone counts.
func (e *examination) links() {
	var list []string
	for _, d := range e.cards() {
		if l := d.PCIe; l.Width > 0 && l.Width < l.MaxWidth {
			list = append(list, fmt.Sprintf("GPU %s: x%d of x%d", d.Address, l.Width, l.MaxWidth))
		}
	}
	for _, d := range e.ports() {
		if l := d.PCIe; l.Degraded() {
			list = append(list, fmt.Sprintf("NIC %s: %v GT/s x%d of %v GT/s x%d", d.Address, l.Speed, l.Width, l.MaxSpeed, l.MaxWidth))
		}
	}
	if len(list) > 0 {
		e.find(Finding{
			ID: "degraded-link", Severity: Warning,
			Summary:  fmt.Sprintf("%s slower than it could be.", isAre(len(list), "PCIe link")),
			Evidence: some(list),
			Why:      "Traffic between GPU and NIC has a fraction of the bandwidth; Tandem takes such NICs last.",
			Fix:      []string{"reseat the card or its riser, look for AER errors (dmesg), and read current_link_speed again"},
		})
	}
}

// deviceNodes: what containers are given has to be there.
func (e *examination) deviceNodes() {
	var missing []string
	want := func(node, whose string) {
		file := path.Join(e.DevRoot, node)
		if _, err := os.Lstat(file); err != nil && !e.denied(file, err) {
			missing = append(missing, fmt.Sprintf("/dev/%s of %s", node, whose))
		}
	}
	for _, d := range e.cards() {
		switch d.Driver {
		case "amdgpu":
			want("kfd", "all AMD GPUs")
			for _, name := range e.names(d.Address, "drm") {
				if strings.HasPrefix(name, "renderD") {
					want("dri/"+name, "GPU "+d.Address.String())
				}
			}
		case "nvidia":
			want("nvidiactl", "all NVIDIA GPUs")
		}
	}
	for _, vf := range e.VFs {
		for _, name := range e.names(vf.Address, "infiniband_verbs") {
			want("infiniband/"+name, "VF "+vf.Address.String())
			want("infiniband/rdma_cm", "all RDMA devices")
		}
	}
	slices.Sort(missing)
	if missing = slices.Compact(missing); len(missing) > 0 {
		e.find(Finding{
			ID: "device-nodes", Severity: Error,
			Summary:  fmt.Sprintf("%s missing.", isAre(len(missing), "device node")),
			Evidence: some(missing),
			Why:      "A container that is given the device cannot open it.",
			Fix: []string{
				"modprobe amdgpu, nvidia, ib_uverbs, rdma_ucm: the one whose node it is; NVIDIA's nodes are made by nvidia-modprobe",
				"in a container: --dev-root with the node's /dev, as in --dev-root=/host/dev",
			},
		})
	}
}

func (e *examination) names(a topology.Address, dir string) []string {
	entries, _ := fs.ReadDir(e.Sys, path.Join(pciDevices, a.String(), dir)) // absent for many
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}
