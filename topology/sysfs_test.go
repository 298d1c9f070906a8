// SPDX-License-Identifier: Apache-2.0

package topology_test

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/test/functions"
	"github.com/tandem-k8s/tandem/topology"
)

const nicDir = "devices/pci0000:80/0000:80:01.0/0000:81:00.0"

func oneNIC() fstest.MapFS {
	return sysfs("0-1", "pci0000:80/0000:80:01.0/0000:81:00.0 "+nic+" 1")
}

func TestReadDevice(t *testing.T) {
	t.Parallel()
	sys := oneNIC()
	for name, content := range map[string]string{
		"vendor": "0x15b3", "device": "0x1021",
		"current_link_speed": "16.0 GT/s PCIe", "max_link_speed": "32.0 GT/s PCIe",
		"current_link_width": "16", "max_link_width": "255",
		"net/ens1np0/type": "1", "net/ens0/type": "1", "infiniband/mlx5_3/node_desc": "x",
	} {
		file(sys, nicDir+"/"+name, content)
	}
	link(sys, nicDir+"/driver", "../../../../bus/pci/drivers/mlx5_core")
	for i, vf := range []string{"0000:81:01.4", "0000:81:00.1", "0000:81:00.2"} {
		virtfn := []string{"virtfn10", "virtfn2", "virtfn9"}[i]
		link(sys, nicDir+"/"+virtfn, "../"+vf)
	}
	d, ok := tree(t, sys).Device(address("0000:81:00.0"))
	if !ok {
		t.Fatal("no 0000:81:00.0")
	}
	got := []any{
		d.Class, d.Vendor, d.Product, d.Driver, d.NUMA.String(), d.PCIe, d.VFs, d.Netdevs, d.RDMA, d.IsVF(),
		d.PCIe.Degraded(),
	}
	want := []any{
		topology.Class(0x020000), uint16(0x15b3), uint16(0x1021), "mlx5_core", "1",
		topology.PCIeLink{Speed: 16, MaxSpeed: 32, Width: 16},
		addresses("0000:81:00.1", "0000:81:00.2", "0000:81:01.4"),
		[]string{"ens0", "ens1np0"}, []string{"mlx5_3"}, false, true,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("0000:81:00.0 (-want +got):\n%s", diff)
	}
}

// TestReadAbsent: a file that is absent is an unknown value, not zero and not an error.
func TestReadAbsent(t *testing.T) {
	t.Parallel()
	sys := oneNIC()
	delete(sys, nicDir+"/numa_node")
	file(sys, nicDir+"/current_link_speed", "Unknown")
	file(sys, nicDir+"/current_link_width", "255")
	d, _ := tree(t, sys).Device(address("0000:81:00.0"))
	if _, known := d.NUMA.Number(); known || d.Vendor != 0 || d.Driver != "" ||
		d.PCIe != (topology.PCIeLink{}) || d.Netdevs != nil {
		t.Errorf("got %+v", d)
	}
	if d.PCIe.Degraded() {
		t.Error("an unknown link is degraded")
	}
}

func TestReadErrors(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		about, name, content, want string
	}{
		{"class", nicDir + "/class", "network", `read class of 0000:81:00.0: parse "network": invalid syntax`},
		{"wide vendor", nicDir + "/vendor", "0x115b3",
			`read vendor of 0000:81:00.0: parse "0x115b3": value out of range`},
		{"numa_node", nicDir + "/numa_node", "one", `read numa_node of 0000:81:00.0: parse "one": invalid syntax`},
		{"PF", nicDir + "/physfn", "-> ../pf0",
			`read physfn of 0000:81:00.0: parse PCI address "pf0": want domain:bus:device.function, as in 0000:81:00.0`},
		{"VF", nicDir + "/virtfn0", "-> ../vf0",
			`read virtfn0 of 0000:81:00.0: parse PCI address "vf0": want domain:bus:device.function, as in 0000:81:00.0`},
		{"device name", "bus/pci/devices/dummy", "-> ../../../devices/dummy",
			`list PCI devices: parse PCI address "dummy": want domain:bus:device.function, as in 0000:81:00.0`},
		{"NUMA nodes", "devices/system/node/online", "0-", `read devices/system/node/online: parse list "0-"`},
		{"NUMA nodes backwards", "devices/system/node/online", "3-1",
			`read devices/system/node/online: parse list "3-1"`},
		{"too many NUMA nodes", "devices/system/node/online", "0-9999999",
			`read devices/system/node/online: parse list "0-9999999"`},
	} {
		t.Run(test.about, func(t *testing.T) {
			t.Parallel()
			sys := oneNIC()
			if target, ok := strings.CutPrefix(test.content, "-> "); ok {
				link(sys, test.name, target)
			} else {
				file(sys, test.name, test.content)
			}
			_, err := topology.Read(sys)
			if err == nil || err.Error() != test.want {
				t.Errorf("error %v\n want %s", err, test.want)
			}
		})
	}
	if _, err := topology.Read(fstest.MapFS{}); !errors.Is(err, fs.ErrNotExist) ||
		!strings.HasPrefix(err.Error(), "list PCI devices: ") {
		t.Errorf("a root without PCI: %v", err)
	}
}

// failing is a machine where reading one file fails.
func failing(sys fstest.MapFS, suffix string, fault error) fs.FS {
	return functions.Faulty{Files: sys, Fail: func(call, name string) error {
		if call == "read" && strings.HasSuffix(name, suffix) {
			return fault
		}
		return nil
	}}
}

func TestReadUnreadable(t *testing.T) {
	t.Parallel()
	_, err := topology.Read(failing(oneNIC(), "0000:81:00.0/numa_node", syscall.EIO))
	const want = "read numa_node of 0000:81:00.0: read bus/pci/devices/0000:81:00.0/numa_node: " +
		"input/output error"
	if err == nil || err.Error() != want {
		t.Errorf("error %v\n want %s", err, want)
	}
	// A device that does not tell its link is still a device.
	if _, err := topology.Read(failing(oneNIC(), "/current_link_speed", syscall.EINVAL)); err != nil {
		t.Errorf("a link that cannot be read: %v", err)
	}
}

// TestReadGoing: while a device goes, its directory is still there and its files answer ENODEV.
func TestReadGoing(t *testing.T) {
	t.Parallel()
	tr := tree(t, failing(oneNIC(), "0000:81:00.0/numa_node", syscall.ENODEV))
	if _, ok := tr.Device(address("0000:81:00.0")); ok {
		t.Error("0000:81:00.0 is there")
	}
}

// TestReadVanishing takes a device away after every possible number of reads: it is there whole or not at
// all.
func TestReadVanishing(t *testing.T) {
	t.Parallel()
	seen := map[bool]bool{}
	for calls := range 30 {
		left := calls
		tr := tree(t, functions.Faulty{Files: oneNIC(), Fail: func(_, name string) error {
			if !strings.Contains(name, "0000:81:00.0") {
				return nil
			}
			if left--; left >= 0 {
				return nil
			}
			return fs.ErrNotExist
		}})
		d, ok := tr.Device(address("0000:81:00.0"))
		seen[ok] = true
		if ok && (d.Class != 0x020000 || d.NUMA != topology.Node(1)) {
			t.Errorf("after %d reads half of the device is there: %+v", calls, d)
		}
		if _, ok := tr.Device(address("0000:80:01.0")); !ok {
			t.Errorf("after %d reads another device is gone too", calls)
		}
	}
	if !seen[true] || !seen[false] {
		t.Errorf("30 reads are not enough to see the device both ways: %v", seen)
	}
}

// TestIsPassable: names as drivers and udev give them are passable; other bytes that the kernel allows are
// not.
func TestIsPassable(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"eth0", "enp129s0f0np0", "eth0.100", "mlx5_0", "rocep1s0f0v1", "bnxt_re0", "ü0",
	} {
		if !topology.IsPassable(name) {
			t.Errorf("%q is not", name)
		}
	}
	for _, name := range []string{
		"", "ens\xff", "a,b", "a:1", "a=b", "a;b", "^a", "a*", "a b", "a\n", "-a", ".a", "..", "a\u202eb", "a/b",
		"a\"b", string(make([]byte, 64)),
	} {
		if topology.IsPassable(name) {
			t.Errorf("%q is", name)
		}
	}
}

// TestNetFolder: the netdevs of a function bound to virtio-pci are those of its virtio device.
func TestNetFolder(t *testing.T) {
	t.Parallel()
	sys := sysfs("0", "pci0000:00/0000:01:00.0 "+nic+" 0", "pci0000:00/0000:02:00.0 "+nic+" 0")
	for function, folder := range map[string]string{
		"0000:01:00.0": "/virtio3/net/eth1", "0000:02:00.0": "/net/eth2",
	} {
		place := placeOf(sys, function)
		sys[place+folder+"/type"] = &fstest.MapFile{}
		link(sys, place+"/driver", "../../../bus/pci/drivers/virtio-pci")
	}
	read := tree(t, sys)
	for function, want := range map[string]string{"0000:01:00.0": "eth1", "0000:02:00.0": "eth2"} {
		device, _ := read.Device(address(function))
		if dir := topology.PCIDevices + "/" + function; !slices.Equal(device.Netdevs, []string{want}) ||
			!slices.Equal(topology.Netdevs(sys, dir), []string{want}) {
			t.Errorf("%s: %v, want %s", function, device.Netdevs, want)
		}
	}
}
