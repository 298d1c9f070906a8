// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/test/functions"
	"github.com/tandem-k8s/tandem/topology"
)

// live returns a sysfs with files that Capture omits, including identifiers.
func live() fstest.MapFS {
	const pf = "devices/pci0000:80/0000:80:01.0/0000:81:00.0"
	port, vpd := topology.Capabilities{ACS: true, Control: 0x1d}, topology.VPD{V3: "f00d", SN: "MT25"}
	sys := fstest.MapFS{}
	for name, content := range map[string]string{
		pf + "/class":                                           "0x020000\n",
		pf + "/config":                                          string(topology.Capabilities{ATS: true}.Bytes()),
		pf + "/vpd":                                             string(vpd.Bytes()),
		pf + "/vendor":                                          "0x15b3\n",
		pf + "/uevent":                                          "PCI_SLOT_NAME=0000:81:00.0\n",
		pf + "/net/enx001122334455/address":                     "00:11:22:33:44:55\n",
		pf + "/net/enx001122334455/type":                        "1\n",
		pf + "/net/enx001122334455/speed":                       "-1",
		pf + "/net/enx001122334455/phys_switch_id":              "001122334455\n",
		pf + "/infiniband/rocex001122fffe334455/node_guid":      "0011:22ff:fe33:4455\n",
		pf + "/infiniband/rocex001122fffe334455/ports/1/state":  "4: ACTIVE\n",
		pf + "/infiniband/rocex001122fffe334455/ports/1/gids/0": "fe80::11:22ff:fe33:4455\n",
		pf + "/infiniband_verbs/uverbs0/ibdev":                  "rocex001122fffe334455\n",
		pf + "/mlx5_core.rdma.0/uevent":                         "",
		"devices/pci0000:80/0000:80:01.0/class":                 "0x060400\n",
		"devices/pci0000:80/0000:80:01.0/config":                string(port.Bytes()),
		"devices/system/node/online":                            "0-1\n",
		"devices/virtual/net/veth1/type":                        "1\n",
		"devices/virtual/kfd/kfd/topology/nodes/1/properties": "simd_count 304\nhive_id " +
			"15188982192727901047\nunique_id 16404946649897475633\n",
		"devices/virtual/kfd/kfd/topology/nodes/2/properties": "hive_id 15188982192727901047\nunique_id 0\n",
		"devices/virtual/kfd/kfd/topology/nodes/3/properties": "hive_id 0\nunique_id 7\n",
		"devices/virtual/dmi/id/product_serial":               "ABC123\n",
		"kernel/iommu_groups/7/type":                          "DMA\n",
	} {
		sys[name] = &fstest.MapFile{Data: []byte(content), Mode: 0o444}
	}
	for name, target := range map[string]string{
		"bus/pci/devices/0000:80:01.0":           "../../../devices/pci0000:80/0000:80:01.0",
		"bus/pci/devices/0000:81:00.0":           "../../../" + pf,
		"bus/pci/drivers/mlx5_core/0000:81:00.0": "../../../../" + pf,
		"bus/pci/drivers/mlx5_core/module":       "../../../../module/mlx5_core",
		"class/net/enx001122334455":              "../../" + pf + "/net/enx001122334455",
		"class/net/veth1":                        "../../devices/virtual/net/veth1",
		"class/infiniband/rocex001122fffe334455": "../../" + pf + "/infiniband/rocex001122fffe334455",
		pf + "/driver":                           "../../../../bus/pci/drivers/mlx5_core",
		pf + "/iommu_group":                      "../../../../kernel/iommu_groups/7",
		pf + "/firmware_node":                    "../../../LNXSYSTM:00/device:01",
	} {
		sys[name] = &fstest.MapFile{Data: []byte(target), Mode: fs.ModeSymlink}
	}
	return sys
}

// without returns a sysfs in which a call fails for the names that match.
func without(sys fstest.MapFS, failing string, matches func(name string) bool, fault error) fs.FS {
	return functions.Faulty{Files: sys, Fail: func(call, name string) error {
		if call == failing && matches(name) {
			return fault
		}
		return nil
	}}
}

func TestCapture(t *testing.T) {
	t.Parallel()
	isSpeed := func(name string) bool { return strings.HasSuffix(name, "/speed") }
	m, err := Capture(without(live(), "read", isSpeed, syscall.EINVAL)) // as of a netdev that is down
	if err != nil {
		t.Fatal(err)
	}
	const want = header + `
# left out, could not be read: speed (1)
[bus/pci/devices]
0000:80:01.0 -> ../../../devices/pci0000:80/0000:80:01.0
0000:81:00.0 -> ../../../devices/pci0000:80/0000:80:01.0/0000:81:00.0
[bus/pci/drivers/mlx5_core]
0000:81:00.0 -> ../../../../devices/pci0000:80/0000:80:01.0/0000:81:00.0
[class/infiniband]
rocex0000000000000001 -> ../../devices/pci0000:80/0000:80:01.0/0000:81:00.0/infiniband/rocex0000000000000001
[class/net]
enx000000000002 -> ../../devices/pci0000:80/0000:80:01.0/0000:81:00.0/net/enx000000000002
[devices/pci0000:80/0000:80:01.0]
class = 0x060400
config = ACS=0x001d
[devices/pci0000:80/0000:80:01.0/0000:81:00.0]
class = 0x020000
config = ATS
driver -> ../../../../bus/pci/drivers/mlx5_core
iommu_group -> ../../../../kernel/iommu_groups/7
vendor = 0x15b3
vpd = V3=2 SN=3
[devices/pci0000:80/0000:80:01.0/0000:81:00.0/infiniband/rocex0000000000000001/ports/1]
state = 4: ACTIVE
[devices/pci0000:80/0000:80:01.0/0000:81:00.0/infiniband_verbs/uverbs0]
ibdev = rocex0000000000000001
[devices/pci0000:80/0000:80:01.0/0000:81:00.0/mlx5_core.rdma.0]
[devices/pci0000:80/0000:80:01.0/0000:81:00.0/net/enx000000000002]
phys_switch_id = 01
type = 1
[devices/system/node]
online = 0-1
[devices/virtual/kfd/kfd/topology/nodes/1]
properties =
	simd_count 304
	hive_id 4
	unique_id 0
[devices/virtual/kfd/kfd/topology/nodes/2]
properties =
	hive_id 4
	unique_id 0
[devices/virtual/kfd/kfd/topology/nodes/3]
properties =
	hive_id 0
	unique_id 0
[kernel/iommu_groups/7]
end 36 entries
`
	if diff := cmp.Diff(want, write(t, m)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestCaptureOfLayout: Capture of a machine's files gives the same machine.
func TestCaptureOfLayout(t *testing.T) {
	t.Parallel()
	first, err := Capture(live())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, first.FS()); err != nil {
		t.Fatal(err)
	}
	second, err := Capture(os.DirFS(dir))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(write(t, first), write(t, second)); diff != "" {
		t.Errorf("(-first +second):\n%s", diff)
	}
}

// TestLeftOutNames: the name of an interface that cannot be read is without its address too.
func TestLeftOutNames(t *testing.T) {
	t.Parallel()
	const dir = "devices/pci0000:80/0000:80:01.0/0000:81:00.0/net/enx001122334455"
	isDir := func(name string) bool { return name == dir }
	m, err := Capture(without(live(), "list", isDir, syscall.EIO))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"left out, could not be read: enx000000000002 (1)"}
	if diff := cmp.Diff(want, m.Comments()); diff != "" {
		t.Errorf("comments (-want +got):\n%s", diff)
	}
}

// TestAddressedNames: each name with a hardware address loses the address, with a suffix too.
func TestAddressedNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"enx001122334455", "ibx001122fffe334455", "enx001122334455v3", "rocex001122fffe334455.100",
		"wlx001122334455np0",
	} {
		if got := newScrubber().scrubNames("net/" + name + "/type"); strings.Contains(got, "1122") {
			t.Errorf("%s becomes %s", name, got)
		}
	}
}

func TestCaptureErrors(t *testing.T) {
	t.Parallel()
	if _, err := Capture(fstest.MapFS{}); err == nil ||
		!strings.HasPrefix(err.Error(), "capture machine: list PCI devices: ") {
		t.Errorf("a root without PCI: %v", err)
	}
	sys := live()
	sys[path.Join(pciDevices, "0000:99:00.0")] = &fstest.MapFile{Data: []byte("/etc"), Mode: fs.ModeSymlink}
	m, err := Capture(sys)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"left out, could not be read: 0000:99:00.0 (1)"}; !cmp.Equal(want, m.Comments()) {
		t.Errorf("comments %q, want %q", m.Comments(), want)
	}
}
