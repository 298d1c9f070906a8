// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/plugins/deviceplugin"
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
		for _, gone := range []string{"0000:81:00.1", "0000:81:00.2"} {
			s.Remove(functions.Dir(gone))
			s.Remove(topology.PCIDevices + "/" + gone)
		}
		scan := func() {
			if err := vfs.scanMachine(); err != nil {
				t.Fatal(err)
			}
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
