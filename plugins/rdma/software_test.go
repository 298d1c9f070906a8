// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/test/functions"
	"github.com/tandem-k8s/tandem/test/kubelettest"
	"github.com/tandem-k8s/tandem/topology"
)

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
			if err := vfs.scanMachine(); err != nil {
				t.Fatal(err)
			}
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
