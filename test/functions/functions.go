// SPDX-License-Identifier: Apache-2.0

// Package functions builds a sysfs in memory, PCI function by PCI function, in the kernel's layout.
package functions

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"strings"
	"testing"
	"testing/fstest"
)

// pciDevices is the kernel's list of PCI functions.
const pciDevices = "bus/pci/devices"

// Sysfs is a sysfs root to which functions can be added.
type Sysfs fstest.MapFS

// New returns a root of two NUMA nodes without a function.
func New() Sysfs {
	s := Sysfs{}
	s.Write("devices/system/node/online", "0-1")
	return s
}

// FS returns the root as a file system that shows later changes too.
func (s Sysfs) FS() fs.FS { return fstest.MapFS(s) }

// Write adds or replaces a file, with the kernel's newline at the end.
func (s Sysfs) Write(file, content string) {
	s[file] = &fstest.MapFile{Data: []byte(content + "\n"), Mode: 0o444}
}

// Symlink adds or replaces a link.
func (s Sysfs) Symlink(file, target string) {
	s[file] = &fstest.MapFile{Data: []byte(target), Mode: fs.ModeSymlink | 0o777}
}

// Folder lays the root out as a folder.
func (s Sysfs) Folder(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	if err := os.CopyFS(root, s.FS()); err != nil {
		t.Fatal(err)
	}
	return root
}

// Dir returns the folder of a function. Every function is below a root port.
func Dir(address string) string { return "devices/pci0000:80/0000:80:01.0/" + address }

// Facts are the files of a function by name. A few names add more than a file: see Function.
type Facts map[string]string

// Function adds a PCI function. Of the facts, driver, pf and iommu are links, netdev and rdma are devices of
// theirs, and the rest are files.
func (s Sysfs) Function(address string, given Facts) {
	s.Symlink(path.Join(pciDevices, address), "../../../"+Dir(address))
	f := Facts{
		"class": "0x020000", "vendor": "0x15b3", "device": "0x101e", "numa_node": "0", "driver": "mlx5_core",
	}
	maps.Copy(f, given)
	for name, value := range f {
		switch {
		case value == "":
		case name == "driver":
			s.Symlink(path.Join(Dir(address), name), "../../../../bus/pci/drivers/"+value)
		case name == "pf":
			s.Symlink(path.Join(Dir(address), "physfn"), "../"+value)
		case name == "iommu":
			s.Symlink(path.Join(Dir(address), "iommu_group"), "../../../../kernel/iommu_groups/"+value)
			s.Write("kernel/iommu_groups/"+value+"/type", "DMA")
		case name == "netdev":
			s.Netdev(address, value, "1")
		case name == "rdma":
			s.RDMA(address, value, value[len("mlx5_"):])
		default:
			s.Write(path.Join(Dir(address), name), value)
		}
	}
}

// Netdev adds a netdev of a function; its type is a number of include/uapi/linux/if_arp.h.
func (s Sysfs) Netdev(address, name, linkType string) {
	file := path.Join(Dir(address), "net", name)
	s.Write(path.Join(file, "type"), linkType)
	s.Symlink("class/net/"+name, "../../"+file)
}

// Upper adds a netdev above netdevs, as a bond, or the synthetic netdev of a guest above its VF.
func (s Sysfs) Upper(name string, lower ...string) {
	folder := "devices/virtual/net/" + name
	s.Write(folder+"/type", "1")
	s.Symlink("class/net/"+name, "../../"+folder)
	for _, netdev := range lower {
		place := strings.TrimPrefix(string(s["class/net/"+netdev].Data), "../../")
		s.Symlink(folder+"/lower_"+netdev, "../../../"+strings.TrimPrefix(place, "devices/"))
		up := strings.Repeat("../", strings.Count(place, "/")) + "virtual/net/" + name
		s.Symlink(place+"/upper_"+name, up)
		s.Symlink(place+"/master", up)
	}
}

// RDMA adds an RDMA device with one port and its character devices.
func (s Sysfs) RDMA(address, name, number string) {
	s.Write(path.Join(Dir(address), "infiniband", name, "node_type"), "1: CA")
	for class, devices := range map[string][]string{
		"infiniband_mad":   {"umad" + number, "issm" + number},
		"infiniband_verbs": {"uverbs" + number},
	} {
		for _, device := range devices {
			s.Write(path.Join(Dir(address), class, device, "ibdev"), name)
		}
	}
}

// VDPA adds a vDPA device of a function; node is the name of its node, "" for none.
func (s Sysfs) VDPA(address, name, driver, node string) {
	file := path.Join(Dir(address), name)
	s.Symlink("bus/vdpa/devices/"+name, "../../../"+file)
	s.Symlink(path.Join(file, "driver"), "../../../../../bus/vdpa/drivers/"+driver)
	if node != "" {
		s.Write(path.Join(file, node, "dev"), "511:0")
	}
}

// Subfunction adds a sub-function of a function, without a netdev or RDMA device if their names are "".
func (s Sysfs) Subfunction(address, name, number, netdev, rdma string) {
	file := path.Join(Dir(address), name)
	s.Symlink("bus/auxiliary/devices/"+name, "../../../"+file)
	s.Write(path.Join(file, "sfnum"), number)
	if netdev != "" {
		s.Write(path.Join(file, "net", netdev, "type"), "1")
	}
	if rdma != "" {
		s.Write(path.Join(file, "infiniband", rdma, "node_type"), "1: CA")
		s.Write(path.Join(file, "infiniband_verbs", "uverbs"+rdma[len("mlx5_"):], "ibdev"), rdma)
	}
}

// PF adds a PF with VFs at the next addresses: 0000:81:00.0 has 0000:81:00.1 and so on. Every VF has a netdev
// and an RDMA device.
func (s Sysfs) PF(bus byte, netdev string, vfs int, given Facts) {
	pf := fmt.Sprintf("0000:%02x:00.0", bus)
	f := Facts{
		"device": "0x1021", "netdev": netdev, "rdma": fmt.Sprintf("mlx5_%d", int(bus)*10),
		"sriov_totalvfs": "16", "sriov_numvfs": fmt.Sprint(vfs),
	}
	maps.Copy(f, given)
	s.Function(pf, f)
	for i := range vfs {
		vf := fmt.Sprintf("0000:%02x:%02x.%d", bus, (i+1)/8, (i+1)%8)
		s.Symlink(path.Join(Dir(pf), fmt.Sprintf("virtfn%d", i)), "../"+vf)
		s.Function(vf, Facts{
			"pf":        pf,
			"netdev":    fmt.Sprintf("%sv%d", netdev, i),
			"rdma":      fmt.Sprintf("mlx5_%d", int(bus)*10+i+1),
			"numa_node": cmp.Or(f["numa_node"], "0"),
			"driver":    cmp.Or(f["driver"], "mlx5_core"),
		})
	}
}

// Remove removes a file or folder with everything below it.
func (s Sysfs) Remove(name string) {
	for file := range s {
		if file == name || strings.HasPrefix(file, name+"/") {
			delete(s, file)
		}
	}
}

// Hide hides a device like a container's namespaces: its netdev, in exclusive mode its RDMA device too. The
// classes of character devices have no namespaces.
func (s Sysfs) Hide(address string, exclusive bool) {
	s.Remove(Dir(address) + "/net")
	if exclusive {
		s.Remove(Dir(address) + "/infiniband")
	}
}
