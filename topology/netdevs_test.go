// SPDX-License-Identifier: Apache-2.0

package topology_test

import (
	"slices"
	"testing"
	"testing/fstest"

	"github.com/tandem-k8s/tandem/topology"
)

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
