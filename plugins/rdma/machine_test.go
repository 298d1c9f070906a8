package rdma

import (
	"cmp"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path"
	"path/filepath"
	"testing"
	"testing/fstest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sysfs builds a sysfs root as the kernel lays it out, function by function.
type sysfs fstest.MapFS

func newSysfs() sysfs {
	s := sysfs{}
	s.write("devices/system/node/online", "0-1")
	return s
}

func (s sysfs) FS() fs.FS { return fstest.MapFS(s) }

func (s sysfs) write(file, content string) {
	s[file] = &fstest.MapFile{Data: []byte(content + "\n"), Mode: 0o444}
}

func (s sysfs) symlink(file, target string) {
	s[file] = &fstest.MapFile{Data: []byte(target), Mode: fs.ModeSymlink | 0o777}
}

// folder lays the root out as a folder.
func (s sysfs) folder(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	if err := os.CopyFS(root, s.FS()); err != nil {
		t.Fatal(err)
	}
	return root
}

// dir is the folder of a function; every one hangs on a root port of its own number.
func dir(address string) string { return "devices/pci0000:80/0000:80:01.0/" + address }

// facts are the files of a function by name. A few names stand for more than a file: see function.
type facts map[string]string

// function adds a PCI function. Of the facts, driver, pf and iommu are links, netdev and rdma are devices of theirs, and
// the rest are files.
func (s sysfs) function(address string, given facts) {
	s.symlink(path.Join(pciDevices, address), "../../../"+dir(address))
	f := facts{"class": "0x020000", "vendor": "0x15b3", "device": "0x101e", "numa_node": "0", "driver": "mlx5_core"}
	maps.Copy(f, given)
	for name, value := range f {
		switch {
		case value == "":
		case name == "driver":
			s.symlink(path.Join(dir(address), name), "../../../../bus/pci/drivers/"+value)
		case name == "pf":
			s.symlink(path.Join(dir(address), "physfn"), "../"+value)
		case name == "iommu":
			s.symlink(path.Join(dir(address), "iommu_group"), "../../../../kernel/iommu_groups/"+value)
			s.write("kernel/iommu_groups/"+value+"/type", "DMA")
		case name == "netdev":
			s.netdev(address, value, "1")
		case name == "rdma":
			s.rdma(address, value, value[len("mlx5_"):])
		default:
			s.write(path.Join(dir(address), name), value)
		}
	}
}

func (s sysfs) netdev(address, name, linkType string) {
	file := path.Join(dir(address), "net", name)
	s.write(path.Join(file, "type"), linkType)
	s.symlink("class/net/"+name, "../../"+file)
}

// rdma adds an RDMA device with one port and its character devices.
func (s sysfs) rdma(address, name, number string) {
	s.write(path.Join(dir(address), "infiniband", name, "node_type"), "1: CA")
	for class, devices := range map[string][]string{
		"infiniband_mad":   {"umad" + number, "issm" + number},
		"infiniband_verbs": {"uverbs" + number},
	} {
		for _, device := range devices {
			s.write(path.Join(dir(address), class, device, "ibdev"), name)
		}
	}
}

// vdpa adds a vDPA device of a function; node is the name of its node, "" for none.
func (s sysfs) vdpa(address, name, driver, node string) {
	file := path.Join(dir(address), name)
	s.symlink("bus/vdpa/devices/"+name, "../../../"+file)
	s.symlink(path.Join(file, "driver"), "../../../../../bus/vdpa/drivers/"+driver)
	if node != "" {
		s.write(path.Join(file, node, "dev"), "511:0")
	}
}

// subfunction adds a sub-function of a function, without netdev and RDMA device where their names are "".
func (s sysfs) subfunction(address, name, number, netdev, rdma string) {
	file := path.Join(dir(address), name)
	s.symlink("bus/auxiliary/devices/"+name, "../../../"+file)
	s.write(path.Join(file, "sfnum"), number)
	if netdev != "" {
		s.write(path.Join(file, "net", netdev, "type"), "1")
	}
	if rdma != "" {
		s.write(path.Join(file, "infiniband", rdma, "node_type"), "1: CA")
		s.write(path.Join(file, "infiniband_verbs", "uverbs"+rdma[len("mlx5_"):], "ibdev"), rdma)
	}
}

// pf adds a PF with VFs right behind it: 0000:81:00.0 has 0000:81:00.1 and so on. Every VF has a netdev and an RDMA device.
func (s sysfs) pf(bus byte, netdev string, vfs int, given facts) {
	pf := fmt.Sprintf("0000:%02x:00.0", bus)
	f := facts{"device": "0x1021", "netdev": netdev, "rdma": fmt.Sprintf("mlx5_%d", int(bus)*10), "sriov_totalvfs": "16", "sriov_numvfs": fmt.Sprint(vfs)}
	maps.Copy(f, given)
	s.function(pf, f)
	for i := range vfs {
		vf := fmt.Sprintf("0000:%02x:%02x.%d", bus, (i+1)/8, (i+1)%8)
		s.symlink(path.Join(dir(pf), fmt.Sprintf("virtfn%d", i)), "../"+vf)
		s.function(vf, facts{
			"pf":        pf,
			"netdev":    fmt.Sprintf("%sv%d", netdev, i),
			"rdma":      fmt.Sprintf("mlx5_%d", int(bus)*10+i+1),
			"numa_node": cmp.Or(f["numa_node"], "0"),
			"driver":    cmp.Or(f["driver"], "mlx5_core"),
		})
	}
}

// config parses a configuration that has to be right.
func config(t *testing.T, text string) *Config {
	t.Helper()
	c, err := parseConfig("config.json", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// find finds the pools of a machine.
func find(t testing.TB, sys fs.FS, list, prefix string, events Events) *VFs {
	t.Helper()
	c, err := parseConfig("config.json", []byte(list))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "vfs.json")
	vfs, err := FindVFs(Finder{Sys: sys, Prefix: prefix}, c, file, nil, events, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return vfs
}

// ids lists the device IDs of a pool.
func ids(p Pool) []string {
	var ids []string
	for _, d := range p.Devices {
		ids = append(ids, d.ID)
	}
	return ids
}
