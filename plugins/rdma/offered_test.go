// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/plugins/deviceplugin"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/test/checkpoint"
	"github.com/tandem-k8s/tandem/test/functions"
	"github.com/tandem-k8s/tandem/topology"
)

// A pool whose VFs are all gone leaves the kubelet's list like a part of a pool: otherwise the VFs count as
// capacity of the node until the daemon restarts.
func TestEmptiedPoolLeavesTheList(t *testing.T) {
	s := functions.New()
	s.PF(0x81, "ens1", 2, nil)
	held := func() (map[string][]string, error) { return nil, nil }
	before := find(t, s.FS(), resources(`{"resourceName": "a"}`), "intel.com", nil)
	known := Known{File: before.known.File, Held: held}
	vfs, err := FindVFs(before.finder, before.config, known, nil, before.log)
	if err != nil {
		t.Fatal(err)
	}
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	if err := checkpoint.Write(dir, nil, nil); err != nil {
		t.Fatal(err)
	}
	sys := filepath.Join(dir, "sys")
	if err := os.Mkdir(sys, 0o755); err != nil {
		t.Fatal(err)
	}
	node, err := coordination.New(coordination.Config{
		RunDir: filepath.Join(dir, "run"), KubeletDir: dir, SysRoot: sys, Log: log,
		Tree: func() (*topology.Tree, error) { return topology.Read(s.FS()) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = node.Run(ended) // closes what New opened
	})
	host := Host{Sys: s.FS(), Dev: os.DirFS(dir), DevinfoDir: filepath.Join(dir, "dp")}
	p := NewPlugin("intel.com/a", vfs, host,
		node.Member("intel.com/a", device.VF), log)
	synctest.Test(t, func(t *testing.T) {
		var list []deviceplugin.Device
		publish := func(to []deviceplugin.Device) { list = to }
		p.publishDevices(t.Context(), publish)
		if len(list) != 2 {
			t.Fatalf("listed %v, want both VFs", list)
		}
		unplugFrom(s, "0000:81:00.1", "0000:81:00.2")
		scan := func() {
			scan(t, vfs)
		}
		scan()
		again, _ := p.publishDevices(t.Context(), publish)
		scan() // forgets what no container holds
		<-again
		p.publishDevices(t.Context(), publish)
		if len(list) > 0 {
			t.Errorf("the kubelet still lists %v, and nothing will change that", list)
		}
	})
}

// TestNodeNetworkForAMoment: a function that has carried the node's default route is not offered while the
// route, or the netdev itself, is away for a moment; a daemon that starts anew offers it.
func TestNodeNetworkForAMoment(t *testing.T) {
	s := functions.New()
	s.PF(0x81, "ens1", 0, nil)
	s.PF(0x82, "ens2", 2, nil)
	routes := []string{"ens1"}
	finder := pools.Finder{
		Sys: s.FS(), Prefix: "intel.com",
		Routes: func() (pools.Routes, error) { return pools.Routes{Main: slices.Clone(routes)}, nil },
	}
	list := resources(`{"resourceName": "a", "selectors": {"vendors": ["15b3"]}}`)
	vfs, err := FindVFs(finder, config(t, list), Known{File: filepath.Join(t.TempDir(), "vfs.json")}, nil,
		slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	others := []string{"0000:82:00.1", "0000:82:00.2"}
	for _, step := range []struct {
		what   string
		change func()
	}{
		{"with the route", func() {}},
		{"without it", func() { routes = nil }},
		{"with another one", func() { routes = []string{"ens2"} }},
		{"with a netdev that has not got its name yet", func() {
			routes = nil
			s.Remove(functions.Dir("0000:81:00.0") + "/net/ens1")
			s.Netdev("0000:81:00.0", "eth0", "1")
		}},
	} {
		step.change()
		scan(t, vfs)
		if diff := cmp.Diff(others, state(vfs, "intel.com/a")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.what, diff)
		}
	}
	all := append([]string{"0000:81:00.0"}, others...)
	if diff := cmp.Diff(all, state(restarted(t, vfs), "intel.com/a")); diff != "" {
		t.Errorf("after a restart (-want +got):\n%s", diff)
	}
}

// TestSubfunctionOfAnotherPF: the kernel gives the number of a sub-function that was deleted to the next one,
// which can be another PF's. The plugin announces it.
func TestSubfunctionOfAnotherPF(t *testing.T) {
	const name = "mlx5_core.sf.2"
	s := functions.New()
	s.PF(0x81, "ens1", 0, functions.Facts{"numa_node": "0"})
	s.PF(0x82, "ens2", 0, functions.Facts{"numa_node": "0"})
	s.Subfunction("0000:81:00.0", name, "88", "ens1s88", "mlx5_70")
	list := resources(`{"resourceName": "a", "deviceType": "auxNetDevice", "selectors": {"auxTypes": ["sf"]}}`)
	vfs := find(t, s.FS(), list, "intel.com", nil)
	for _, step := range []struct {
		change  func()
		address string
		told    bool
	}{
		{func() {}, "0000:81:00.0", false},
		{func() {
			s.Remove(functions.Dir("0000:81:00.0") + "/" + name)
			s.Subfunction("0000:82:00.0", name, "88", "ens2s88", "mlx5_71")
		}, "0000:82:00.0", true},
		{func() {}, "0000:82:00.0", false},
	} {
		_, changed := vfs.latestPool("intel.com/a")
		step.change()
		scan(t, vfs)
		told := false
		select {
		case <-changed:
			told = true
		default:
		}
		pool, _ := vfs.latestPool("intel.com/a")
		if d := pool.Devices[0]; len(pool.Devices) != 1 || d.ID != name || d.Fault != "" ||
			d.Address.String() != step.address || told != step.told {
			t.Errorf("%+v, announced %t; want it at %s, announced %t", pool.Devices, told, step.address, step.told)
		}
	}
}
