// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/finding"
	"github.com/tandem-k8s/tandem/cmd/tandem/document"
	"github.com/tandem-k8s/tandem/topology"
)

// unknownNodes finds GPUs and NICs without a NUMA node, on a machine with several.
func unknownNodes(h hardware) []Finding {
	if len(h.tree.NUMANodes()) <= 1 {
		return nil
	}
	var list []string
	note := func(d *topology.Device) {
		if _, known := d.NUMA.Number(); !known {
			list = append(list, fmt.Sprintf("/sys/bus/pci/devices/%s/numa_node: -1", d.Address))
		}
	}
	for _, d := range h.gpus {
		note(d)
	}
	for _, pf := range h.pfs {
		note(pf.Device)
	}
	return finding.OfSome(list, Finding{
		ID: "numa-node", Severity: Warning,
		Summary: fmt.Sprintf("The NUMA node of %s is unknown.", document.Count(len(list), "GPU or NIC")),
		Why: "The kubelet gets these devices without a NUMA node: a container's CPUs, " +
			"and its devices of the other kind, may come from another socket.",
		Fix: []string{
			"firmware with ACPI _PXM, or a hypervisor that exposes the NUMA node",
			"until then, after each boot: echo NODE > /sys/bus/pci/devices/ADDRESS/numa_node",
		},
	})
}

// noGPU finds a node without GPUs.
func noGPU(h hardware) []Finding {
	return finding.When(len(h.offeredGPUs) == 0, Finding{
		ID: "no-gpu", Severity: Error,
		Summary:  "There is no GPU of " + named(titleOf) + ".",
		Evidence: []string{"no such display controller or accelerator in /sys/bus/pci/devices"},
		Why:      "There is nothing to pair.",
		Fix:      []string{"keep the DaemonSets off this node"},
	})
}

// gpuDrivers finds GPUs without their vendor's driver, which no plugin can offer.
func gpuDrivers(h hardware) []Finding {
	var list []string
	for _, d := range h.gpus {
		if _, ok := driving(d); !ok {
			list = append(list, fmt.Sprintf("%s: driver %s", d.Address, cmp.Or(d.Driver, "none")))
		}
	}
	return finding.OfSome(list, Finding{
		ID: "gpu-driver", Severity: Error,
		Summary: fmt.Sprintf("%s not driven by %s.", document.CountAre(len(list), "GPU"), named(driverOf)),
		Why:     "A container cannot use it, and it is not offered.",
		Fix: []string{
			"modprobe " + named(driverOf) + ", and take the GPU from a driver for virtual machines (driver_override)",
		},
	})
}

// deviceNodes finds device nodes that are missing.
func deviceNodes(h hardware) []Finding {
	return finding.OfSome(h.missing, Finding{
		ID: "device-nodes", Severity: Error,
		Summary: fmt.Sprintf("%s missing.", document.CountAre(len(h.missing), "device node")),
		Why:     "Containers with the device cannot open it.",
		Fix: []string{
			nodesFix(),
			"in a container: --dev-root with the node's /dev, as in --dev-root=/host/dev",
		},
	})
}

// degradedLinks finds PCIe links below their maximum.
func degradedLinks(h hardware) []Finding {
	var list []string
	for _, d := range h.gpus {
		if l := d.PCIe; l.DegradedOf(true) {
			list = append(list, fmt.Sprintf("GPU %s: x%d of x%d", d.Address, l.Width, l.MaxWidth))
		}
	}
	for _, d := range h.pfs {
		if l := d.PCIe; l.DegradedOf(false) {
			list = append(list,
				fmt.Sprintf("NIC %s: %v GT/s x%d of %v GT/s x%d", d.Address, l.Speed, l.Width, l.MaxSpeed, l.MaxWidth))
		}
	}
	return finding.OfSome(list, Finding{
		ID: "degraded-link", Severity: Warning,
		Summary: fmt.Sprintf("%s slower than its maximum.", document.CountAre(len(list), "PCIe link")),
		Why:     "Traffic between GPU and NIC has only a fraction of the bandwidth; Tandem selects such NICs last.",
		Fix: []string{
			"reseat the card or its riser, look for AER errors (dmesg), and read current_link_speed again",
		},
	})
}

// redirects finds switch ports that send the traffic between GPU and NIC up to the root complex and back (ACS
// P2P request or completion redirect), although both share the switch.
func redirects(h hardware) []Finding {
	var list []string
	for _, port := range h.ports {
		if port.redirects {
			list = append(list, fmt.Sprintf("switch port %s: ACS redirects requests or completions", port.Address))
		}
	}
	ports := "1 switch port redirects"
	if len(list) > 1 {
		ports = fmt.Sprintf("%d switch ports redirect", len(list))
	}
	return finding.OfSome(list, Finding{
		ID: "acs-redirect", Severity: Warning,
		Summary: ports + " traffic between GPUs and NICs to the root complex (ACS).",
		Why: "Even with a common switch, every transfer crosses the CPU's root complex: GPUDirect " +
			"RDMA is slow.",
		Fix: []string{
			"on bare metal: disable ACS in the BIOS, or at each boot: setpci -s PORT ECAP_ACS+0x6.w=0000",
			"machines that pass devices to guests need ACS: use ATS and the direct translated bit instead",
		},
	})
}

// unreadRedirects finds switch ports whose ACS the kernel hides.
func unreadRedirects(h hardware) []Finding {
	var list []string
	for _, port := range h.ports {
		if port.ACS == topology.ACSUnknown && port.hasConfig {
			list = append(list, fmt.Sprintf(
				"switch port %s: its configuration space is hidden beyond the first 64 bytes", port.Address))
		}
	}
	for _, port := range h.complexes.unread {
		list = append(list, fmt.Sprintf(
			"port %s: its configuration space is hidden beyond the first 64 bytes", port))
	}
	return finding.OfSome(list, Finding{
		ID: "acs-redirect", Severity: Unknown,
		Summary: "Redirection of traffic to the root complex (ACS) is unknown.",
		Why:     "Redirected traffic crosses the CPU's root complex, even if the GPU and the NIC share a switch.",
		Fix: []string{"run tandem doctor with CAP_SYS_ADMIN: without it only the first 64 bytes are " +
			"readable of the configuration space"},
	})
}

// access reaches files, folders and sockets, and notes those without permission. A closed file is neither
// missing nor damaged: its only finding is [noRight].
type access struct{ closed []string }

// denied reports whether an error is a lack of permission, and notes the closed path.
func (a *access) denied(path string, err error) bool {
	if !errors.Is(err, fs.ErrPermission) {
		return false
	}
	for isClosed(path) { // then a folder above is closed
		path = filepath.Dir(path)
	}
	if !slices.Contains(a.closed, path) {
		a.closed = append(a.closed, path)
	}
	return true
}

func isClosed(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrPermission)
}

// unreached says why nobody answers on a socket; "" for an answer, and for a closed socket.
func (a *access) unreached(socket string) string {
	if err := dial(socket); err != nil && !a.denied(socket, err) {
		return fmt.Sprintf("%s: %v", socket, err)
	}
	return ""
}

// dialTimeout limits a connection, which the kernel accepts however busy the process is.
const dialTimeout = time.Second

// dial returns why a socket cannot be reached, nil if a process listens.
func dial(socket string) error {
	conn, err := net.DialTimeout("unix", socket, dialTimeout)
	if err != nil {
		return errors.Unwrap(err)
	}
	return conn.Close()
}

// noRight finds the closed files and folders.
func noRight(closed []string) []Finding {
	slices.Sort(closed)
	return finding.OfSome(closed, Finding{
		ID: "no-right", Severity: Unknown,
		Summary: fmt.Sprintf("User %d is not permitted to read %s.",
			os.Geteuid(), document.Count(len(closed), "file or folder")),
		Why: "The report lacks this data.",
		Fix: []string{
			"run tandem doctor as root: sudo tandem doctor", "in a debug container: kubectl debug --profile=sysadmin",
		},
	})
}

// vendor is a maker of GPUs, as far as an examination looks at its driver and its own device plugin.
type vendor struct {
	title   string
	driver  string // of its PCI functions
	control string // device node that all of its GPUs share
	render  bool   // each GPU has a render node
	maker   string // program that makes the device nodes; "" if the driver does
	// whether a socket in the kubelet's folder is that of the vendor's own device plugin
	socket func(name string) bool
}

var vendors = []vendor{
	{
		title: "AMD", driver: "amdgpu", control: "kfd", render: true,
		// kubevirt's device-plugin-manager: no suffix
		socket: func(name string) bool { return strings.HasPrefix(name, "amd.com_") },
	},
	{
		title: "NVIDIA", driver: "nvidia", control: "nvidiactl", maker: "nvidia-modprobe",
		// internal/plugin/server.go there
		socket: func(name string) bool { return strings.HasPrefix(name, "nvidia-") && path.Ext(name) == ".sock" },
	},
}

// driving returns the vendor whose driver has a GPU; false where another driver has it, or none.
func driving(d *topology.Device) (vendor, bool) {
	i := slices.IndexFunc(vendors, func(v vendor) bool { return v.driver == d.Driver })
	if i < 0 {
		return vendor{}, false
	}
	return vendors[i], true
}

// named lists the vendors for people, as "AMD or NVIDIA".
func named(name func(vendor) string) string {
	var names []string
	for _, v := range vendors {
		names = append(names, name(v))
	}
	return strings.Join(names, " or ")
}

// nodesFix returns the remedy for missing device nodes: the modules to load, and the programs that make
// nodes.
func nodesFix() string {
	var modules []string
	var makers strings.Builder
	for _, v := range vendors {
		modules = append(modules, v.driver)
		if v.maker != "" {
			makers.WriteString("; " + v.title + "'s nodes are created by " + v.maker)
		}
	}
	modules = append(modules, "ib_uverbs")
	return "modprobe the node's module (" + strings.Join(modules, ", ") + " or rdma_ucm)" + makers.String()
}

func titleOf(v vendor) string  { return v.title }
func driverOf(v vendor) string { return v.driver }
