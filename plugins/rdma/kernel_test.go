// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/test/functions"
	"github.com/tandem-k8s/tandem/test/kubelettest"
	"github.com/tandem-k8s/tandem/topology"
)

// follow counts what the kernel of this machine tells of from now on, for the time of a test. There is one
// socket, or, where carriers are watched, there are two.
func follow(t *testing.T, list string, sockets int) <-chan struct{} {
	t.Helper()
	told := make(chan struct{}, 1024)
	events := MachineEvents("/sys", config(t, list))
	runs(t, func(ctx context.Context) error {
		return events(ctx, func() {
			select {
			case told <- struct{}{}:
			default:
			}
		})
	})
	for range sockets {
		kubelettest.Await(t, told)
	}
	return told
}

// provoke writes to a file of the kernel's, which tells of it.
func provoke(t *testing.T, told <-chan struct{}, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0); err != nil {
		t.Skipf("the kernel cannot be asked for an event: %v", err)
	}
	kubelettest.Await(t, told)
}

// The real kernel tells of a PCI function, which root can make it do
// (Documentation/ABI/testing/sysfs-uevent).
func TestKernelTellsOfPCI(t *testing.T) {
	files, err := filepath.Glob("/sys/bus/pci/devices/*/uevent")
	if err != nil || len(files) == 0 {
		t.Skip("this machine has no PCI function")
	}
	provoke(t, follow(t, resources(`{"resourceName": "a", "checkHealthOnPf": true}`), 2), files[0], "change")
}

// The real kernel tells of a NIC that comes: one of netdevsim, where there is such a thing. Its VFs are no
// PCI functions, so that nothing is selected.
func TestKernelTellsOfNetdevsim(t *testing.T) {
	const bus = "/sys/bus/netdevsim"
	if _, err := os.Stat(bus); err != nil {
		t.Skipf("the kernel of this machine has no netdevsim (modprobe netdevsim): %v", err)
	}
	told := follow(t, resources(`{"resourceName": "a"}`), 1)
	t.Cleanup(func() { _ = os.WriteFile(bus+"/del_device", []byte("4242"), 0) })
	if err := os.WriteFile(bus+"/new_device", []byte("4242 1"), 0); err != nil {
		t.Skipf("netdevsim makes no device: %v", err)
	}
	netdevs, err := filepath.Glob(bus + "/devices/netdevsim4242/net/*/uevent")
	if err != nil || len(netdevs) == 0 {
		t.Fatalf("netdevsim made no netdev: %v", err)
	}
	provoke(t, told, netdevs[0], "change")
}

func TestDefaultLinks(t *testing.T) {
	_, everything, _ := net.ParseCIDR("0.0.0.0/0")
	_, subnet, _ := net.ParseCIDR("10.0.0.0/24")
	_, everything6, _ := net.ParseCIDR("::/0")
	const main, rail = syscall.RT_TABLE_MAIN, 101
	routes := []netlink.Route{
		{Dst: subnet, LinkIndex: 9, Table: main},
		{Dst: everything, LinkIndex: 3, Table: main},
		{Dst: nil, LinkIndex: 2, Table: main},
		{Dst: everything, LinkIndex: 3, Priority: 100, Table: main},
		{Dst: everything, MultiPath: []*netlink.NexthopInfo{{LinkIndex: 5}, {LinkIndex: 4}}, Table: main},
		{Dst: everything6, LinkIndex: 6, Table: main}, // of a rail's router
		{Dst: everything, LinkIndex: 8, Table: rail},
		{Dst: everything6, LinkIndex: 8, Table: rail},
	}
	for i, route := range routes {
		routes[i].Type, routes[i].Family = syscall.RTN_UNICAST, netlink.FAMILY_V4
		if route.Dst == everything6 {
			routes[i].Family = netlink.FAMILY_V6
		}
	}
	routes = append(routes, netlink.Route{
		Dst: everything6, LinkIndex: 1, Table: main, Type: syscall.RTN_UNREACHABLE, Family: netlink.FAMILY_V6,
	})
	gotMain, gotOther := defaultLinks(routes)
	if diff := cmp.Diff([]int{2, 3, 4, 5}, gotMain); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]int{6, 8}, gotOther); diff != "" {
		t.Error(diff)
	}
	onlyIPv6 := slices.DeleteFunc(routes, func(r netlink.Route) bool { return r.Family == netlink.FAMILY_V4 })
	if gotMain, _ = defaultLinks(onlyIPv6); !slices.Equal(gotMain, []int{6}) {
		t.Errorf("without IPv4 the links are %v", gotMain)
	}
}

func TestDefaultRoutesOfRecordedMachine(t *testing.T) {
	if DefaultRoutes(t.TempDir()) != nil {
		t.Error("a folder has default routes")
	}
}

// TestInternalPortOfOVS: below the internal port of a bridge of Open vSwitch are the ports of the datapath.
func TestInternalPortOfOVS(t *testing.T) {
	attributes := netlink.LinkAttrs{Name: "br-ex"}
	for kind, want := range map[string][]string{
		"openvswitch": {"br-ex", "ovs-system"}, "bridge": {"br-ex"},
	} {
		got := namesOfLink(&netlink.GenericLink{LinkAttrs: attributes, LinkType: kind})
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", kind, diff)
		}
	}
}

// The devices in software that a kernel can make are no PCI functions. Here they hang on made-up ones, by
// links into the /sys of this machine: what is read of them, below the function, is the kernel's own.
const (
	softPF, softVF = "0000:81:00.0", "0000:81:00.1"
	softNetdev     = "tandem0"
	softRDMA       = "tandem_rdma0"
)

// softDevice makes an RDMA device in software on a dummy netdev, for the time of a test.
func softDevice(t *testing.T, kind string) netlink.Link {
	t.Helper()
	netdev := &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: softNetdev}}
	if err := netlink.LinkAdd(netdev); err != nil {
		t.Skipf("this kernel makes no dummy netdev (root, CONFIG_DUMMY): %v", err)
	}
	t.Cleanup(func() { _ = netlink.LinkDel(netdev) })
	if err := netlink.LinkSetUp(netdev); err != nil {
		t.Fatal(err)
	}
	if err := netlink.RdmaLinkAdd(softRDMA, kind, softNetdev); err != nil {
		t.Skipf("this kernel makes no RDMA device in software (modprobe rdma_rxe, siw): %s: %v", kind, err)
	}
	t.Cleanup(func() { _ = netlink.RdmaLinkDel(softRDMA) })
	return netdev
}

// linkInto makes links to what is in a folder of /sys, as far as it is wanted.
func linkInto(t *testing.T, folder, live string, wanted func(name string) bool) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(live)
	if err == nil {
		err = os.MkdirAll(folder, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if !wanted(entry.Name()) {
			continue
		}
		if err := os.Symlink(filepath.Join(live, entry.Name()), filepath.Join(folder, entry.Name())); err != nil {
			t.Fatal(err)
		}
		names = append(names, entry.Name())
	}
	return names
}

// A VF with an RDMA device of the real kernel: its link type is what netlink says, which the stock plugin
// asks; its device nodes are those of that device; its partition key is the default one; its port follows the
// netdev, and the kernel tells of that.
func TestSoftwareRDMA(t *testing.T) {
	for _, kind := range []string{"rxe", "siw"} {
		t.Run(kind, func(t *testing.T) {
			netdev := softDevice(t, kind)
			s := functions.New()
			s.Function(softPF, functions.Facts{"device": "0x1021"})
			s.Symlink(functions.Dir(softPF)+"/virtfn0", "../"+softVF)
			s.Function(softVF, functions.Facts{"pf": softPF})
			root := s.Folder(t)
			vf := filepath.Join(root, functions.Dir(softVF))
			linkInto(t, filepath.Join(vf, "net"), "/sys/class/net", func(name string) bool {
				return name == softNetdev
			})
			linkInto(t, filepath.Join(vf, "infiniband"), "/sys/class/infiniband", func(name string) bool {
				return name == softRDMA
			})
			nodes := map[string][]string{}
			for _, class := range []string{"infiniband_verbs", "infiniband_mad"} {
				nodes[class] = linkInto(t, filepath.Join(vf, class), "/sys/class/"+class, func(name string) bool {
					owner, err := os.ReadFile(filepath.Join("/sys/class", class, name, "ibdev"))
					return err == nil && strings.TrimSpace(string(owner)) == softRDMA
				})
			}

			list := resources(`{"resourceName": "a", "selectors": {"isRdma": true, "linkTypes": ["` +
				linkByNetlink(t).EncapType + `"]}, "checkHealthOnRdmaPort": true}`)
			vfs := find(t, os.DirFS(root), list, "intel.com", nil)
			if diff := cmp.Diff([]string{softVF}, state(vfs, "intel.com/a")); diff != "" {
				t.Fatal(diff)
			}
			pool, _ := vfs.latestPool("intel.com/a")
			granted := Host{Sys: os.DirFS(root), Dev: os.DirFS("/dev")}.Grant(pool.Devices[0], pool.Resource)
			if !slices.Equal(granted.RDMA, []string{softRDMA}) || len(nodes["infiniband_verbs"]) != 1 {
				t.Errorf("RDMA devices %v, nodes %v", granted.RDMA, nodes)
			}
			for _, name := range slices.Concat(nodes["infiniband_verbs"], nodes["infiniband_mad"]) {
				if !slices.ContainsFunc(nodesOf(granted),
					func(node string) bool { return node == "/dev/infiniband/"+name }) {
					t.Errorf("the container gets %v, and not %s", nodesOf(granted), name)
				}
			}
			checkPKey(t, root)

			told := follow(t, resources(`{"resourceName": "a", "checkHealthOnPf": true}`), 2)
			if err := netlink.LinkSetDown(netdev); err != nil {
				t.Fatal(err)
			}
			kubelettest.Await(t, told)
			scan(t, vfs)
			if diff := cmp.Diff([]string{softVF + " the RDMA port is not active"},
				state(vfs, "intel.com/a")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func linkByNetlink(t *testing.T) *netlink.LinkAttrs {
	t.Helper()
	link, err := netlink.LinkByName(softNetdev)
	if err != nil {
		t.Fatal(err)
	}
	return link.Attrs()
}

func nodesOf(g *Grant) (paths []string) {
	for _, node := range g.Nodes {
		paths = append(paths, node.Host)
	}
	return paths
}

// checkPKey compares the partition key that is read with the kernel's. RDMA over TCP (siw) has none.
func checkPKey(t *testing.T, root string) {
	t.Helper()
	address, err := topology.ParseAddress(softVF)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("/sys/class/infiniband/" + softRDMA + "/ports/1/pkeys/0")
	got := pools.SRIOVFiles{Sys: os.DirFS(root)}.DefaultPKey(address)
	if (err == nil) != (got != "") || got != strings.TrimSpace(string(want)) {
		t.Errorf("partition key %q; the kernel says %q, %v", got, want, err)
	}
}
