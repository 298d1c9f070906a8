// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/test/functions"
	"github.com/tandem-k8s/tandem/topology"
)

func sharing(list ...string) string { return `{"configList": [` + strings.Join(list, ",") + `]}` }

// twoHCAs are an HCA whose netdev is up and one whose netdev is not.
func twoHCAs() functions.Sysfs {
	s := functions.New()
	s.Function("0000:81:00.0", functions.Facts{"netdev": "ens1", "rdma": "mlx5_1"})
	s.Function("0000:82:00.0", functions.Facts{"netdev": "ens2", "rdma": "mlx5_10", "numa_node": "1"})
	s.Write(functions.Dir("0000:81:00.0")+"/net/ens1/operstate", "up")
	s.Write(functions.Dir("0000:82:00.0")+"/net/ens2/operstate", "down")
	return s
}

const twoPool = `{"resourceName": "hca", "rdmaHcaMax": 3, "selectors": {"vendors": ["15b3"]}}`

// A container gets the nodes of the HCAs that it was given, alone, each once, and knows them by name. What
// its variables say is in the order of the coordinator, here the reverse of the kubelet's.
func TestAllocateShared(t *testing.T) {
	t.Attr("parity", "shared/device-nodes")
	t.Attr("parity", "shared/device-id")
	nodesOf := func(number string) []string {
		var lines []string
		for _, name := range []string{"issm" + number, "umad" + number, "uverbs" + number} {
			lines = append(lines, "/dev/infiniband/"+name+" /dev/infiniband/"+name+" rw")
		}
		return lines
	}
	cm := []string{"/dev/infiniband/rdma_cm /dev/infiniband/rdma_cm rw"}
	for _, c := range []struct {
		name, pool string
		ids        []string
		envs       map[string]string
		nodes      []string
	}{
		{"one", twoPool, []string{"0000:82:00.0::2"},
			map[string]string{"PCIDEVICE_RDMA_HCA": "0000:82:00.0", "NCCL_IB_HCA": "=mlx5_10"},
			slices.Concat(nodesOf("10"), cm)},
		{"two", twoPool, []string{"0000:81:00.0::0", "0000:82:00.0::0"},
			map[string]string{"PCIDEVICE_RDMA_HCA": "0000:82:00.0,0000:81:00.0", "NCCL_IB_HCA": "=mlx5_10,mlx5_1"},
			slices.Concat(nodesOf("10"), cm, nodesOf("1"))},
		{"one twice", twoPool, []string{"0000:81:00.0::0", "0000:81:00.0::2"},
			map[string]string{"PCIDEVICE_RDMA_HCA": "0000:81:00.0,0000:81:00.0", "NCCL_IB_HCA": "=mlx5_1"},
			slices.Concat(nodesOf("1"), cm)},
		{"without a variable",
			`{"resourceName": "hca", "rdmaHcaMax": 1, "devices": ["ens1"], "tandem": {"variables": [], "alias": true}}`,
			[]string{"0000:81:00.0::0"}, map[string]string{"PCIDEVICE_RDMA_HCA": "0000:81:00.0"},
			slices.Concat(nodesOf("1"), cm)},
		{"all HCAs, as in the stock plugin", `{"tandem": {"allHCAs": true}, ` + twoPool[1:], []string{"0000:82:00.0::1"},
			map[string]string{"PCIDEVICE_RDMA_HCA": "0000:82:00.0,0000:81:00.0"},
			slices.Concat(nodesOf("10"), cm, nodesOf("1"))},
		{"another variable and an alias",
			`{"resourceName": "h-a", "rdmaHcaMax": 1, "devices": ["ens1"],
			"tandem": {"variables": ["UCX_NET_DEVICES"], "alias": true}}`,
			[]string{"0000:81:00.0::0"}, map[string]string{
				"PCIDEVICE_RDMA_H-A": "0000:81:00.0", "PCIDEVICE_RDMA_H_A": "0000:81:00.0", "UCX_NET_DEVICES": "mlx5_1:1",
			}, slices.Concat(nodesOf("1"), cm)},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, _ := offered(t, twoHCAs(), devices("infiniband/rdma_cm"), "intel.com", sharing(c.pool))
			got, err := respond(t.Context(), p, c.ids)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.envs, got.Envs); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(c.nodes, nodes(got)); diff != "" {
				t.Error(diff)
			}
			if _, err := os.Stat(p.host.DevinfoDir); err == nil || len(got.Mounts)+len(got.Annotations) > 0 {
				t.Errorf("more than environment and devices: %v", got)
			}
		})
	}
}

// Through CDI HCAs have the names that the stock plugin gives them, so that containers that it has started
// can start again. One in two pools is in one spec under that name, and in the other under another: runtimes
// take neither of two devices with one name.
func TestSharedCDI(t *testing.T) {
	t.Attr("parity", "shared/cdi-mode")
	list := sharing(twoPool, `{"resourceName": "some", "rdmaHcaMax": 1, "devices": ["ens2"]}`)
	first, dir := withCDI(t, twoHCAs(), devices("infiniband/rdma_cm"), "intel.com", list, false)
	second := NewPlugin("rdma/some", first.vfs, first.host, newRecorder(), first.log)
	second.restoreFiles(nil)
	for _, c := range []struct {
		p          *Plugin
		ids        []string
		key, value string
		spec       string
	}{
		{first, []string{"0000:81:00.0::1", "0000:81:00.0::2", "0000:82:00.0::0"}, "cdi.k8s.io/nvidia.com_net-rdma",
			"nvidia.com/net-rdma=0000:82:00.0,nvidia.com/net-rdma=0000:81:00.0", "nvidia.com_hca.yaml"},
		{second, []string{"0000:82:00.0::3"}, "cdi.k8s.io/nvidia.com_net-rdma_some",
			"nvidia.com/net-rdma=0000:82:00.0.some", "nvidia.com_some.yaml"},
	} {
		got, err := respond(t.Context(), c.p, c.ids)
		if err != nil {
			t.Fatal(err)
		}
		diff := cmp.Diff(map[string]string{c.key: c.value}, got.Annotations)
		if diff != "" || len(got.Devices) > 0 {
			t.Errorf("%v, %s", got.Devices, diff)
		}
		cache, err := cdi.NewCache(cdi.WithSpecDirs(dir), cdi.WithAutoRefresh(false))
		if err != nil {
			t.Fatal(err)
		}
		for name := range strings.SplitSeq(c.value, ",") {
			device := cache.GetDevice(name)
			if device == nil || filepath.Base(device.GetSpec().GetPath()) != c.spec {
				t.Fatalf("%s resolves to %+v; errors %v", name, device, cache.GetErrors())
			}
			if nodes := device.ContainerEdits.DeviceNodes; len(nodes) != 4 {
				t.Errorf("%s has %d nodes", name, len(nodes))
			}
		}
	}
	// The other kinds of specs are not ours to remove, one of NVIDIA's GPUs with a similar name included.
	for file, content := range map[string]string{
		"nvidia.com_gpu.yaml": "kind: nvidia.com/gpu\n", "nvidia.com_old.json": `{"kind": "nvidia.com/net-rdma"}`,
		"sriov-dp-x.yaml": "",
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := first.host.CDI.CleanUp(first.vfs.config); err != nil {
		t.Fatal(err)
	}
	left := topology.Names(os.DirFS(dir), ".")
	if diff := cmp.Diff([]string{"nvidia.com_gpu.yaml", "sriov-dp-x.yaml"}, left); diff != "" {
		t.Error(diff)
	}
}

// An HCA that goes is unhealthy in all its replicas, is told of once, and is back as it was. One that a
// container holds stays known over a restart, from the kubelet's word alone.
func TestSharedHCAComesAndGoes(t *testing.T) {
	var log strings.Builder
	s := twoHCAs()
	c := config(t, sharing(twoPool))
	file := filepath.Join(t.TempDir(), "hcas.json")
	logger := slog.New(slog.NewTextHandler(&log, nil))
	vfs, err := FindVFs(pools.Finder{Sys: s.FS()}, c, Known{File: file}, nil, logger)
	if err != nil {
		t.Fatal(err)
	}
	gone := twoHCAs()
	unplugFrom(gone, "0000:82:00.0")
	vfs.finder.Sys = gone.FS()
	scan(t, vfs)
	want := []string{"0000:81:00.0::0", "0000:81:00.0::1", "0000:81:00.0::2",
		"0000:82:00.0::0 gone", "0000:82:00.0::1 gone", "0000:82:00.0::2 gone"}
	if diff := cmp.Diff(want, state(vfs, "rdma/hca")); diff != "" {
		t.Error(diff)
	}
	if line := `msg="devices failed" resource=rdma/hca reason=gone devices=[0000:82:00.0]`; strings.Count(log.String(), line) != 1 {
		t.Errorf("%q is not logged once:\n%s", line, log.String())
	}
	held := func() (map[string][]string, error) {
		return map[string][]string{"rdma/hca": {"0000:82:00.0::1", "7"}}, nil
	}
	known := Known{File: filepath.Join(t.TempDir(), "none"), Held: held}
	after, err := FindVFs(vfs.finder, c, known, nil, logger)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(append(want[:3:3], "0000:82:00.0::1 gone"), state(after, "rdma/hca")); diff != "" {
		t.Error(diff)
	}
	after.finder.Sys = s.FS()
	scan(t, after)
	if got := state(after, "rdma/hca"); len(got) != 6 || got[4] != "0000:82:00.0::1" {
		t.Errorf("the HCA is back: %v", got)
	}
}

// The netdev that is down is brought up, and what a process may not do, or not do to one, ends nothing.
func TestBringUp(t *testing.T) {
	t.Attr("parity", "shared/link-up")
	for _, c := range []struct {
		err       error
		level, up string
	}{
		{nil, "", "[ens2]"},
		{fmt.Errorf("bring ens2 up: %w", syscall.EPERM), "INFO", "[ens2]"},
		{errors.New("broken"), "WARN", "[ens2]"},
	} {
		var log strings.Builder
		vfs := find(t, twoHCAs().FS(), sharing(twoPool), "intel.com", nil)
		vfs.log = slog.New(slog.NewTextHandler(&log, nil))
		var up []string
		vfs.BringUp(func(netdev string) error { up = append(up, netdev); return c.err })
		logged := log.String()
		if fmt.Sprint(up) != c.up || !strings.Contains(logged, c.level) || (c.level == "") != (logged == "") {
			t.Errorf("%v: brought up %v, log %q", c.err, up, log.String())
		}
	}
	vfs := find(t, twoHCAs().FS(), resources(`{"resourceName": "a"}`), "intel.com", nil)
	vfs.BringUp(func(netdev string) error { t.Errorf("%s is not shared", netdev); return nil })
	if LinkUp(t.TempDir()) != nil {
		t.Error("the netdevs of another machine are brought up")
	}
}

func TestCheckSharing(t *testing.T) {
	t.Attr("parity", "shared/exclusive-mode")
	const remedy = "rdma system set netns shared"
	if err := checkMode("exclusive"); err == nil || !strings.Contains(err.Error(), remedy) {
		t.Errorf("exclusive mode: %v", err)
	}
	if err := errors.Join(checkMode("shared"), CheckSharing(t.TempDir())); err != nil {
		t.Error(err)
	}
}

// A pool holds no more than the coordinator takes of it.
func TestReplicasFitTheCoordinator(t *testing.T) {
	p, _ := offered(t, twoHCAs(), nil, "intel.com",
		sharing(`{"resourceName": "a", "rdmaHcaMax": 100000, "devices": ["ens1", "ens2"]}`))
	pool, _ := p.vfs.latestPool(p.name)
	if n := len(presentDevices(pool)); n != pools.MaxReplicas || n > device.MaxDevices {
		t.Errorf("%d announced", n)
	}
}

// Of a PF that is offered itself, and of a shared HCA, its own carrier counts.
func TestCarrierOfPF(t *testing.T) {
	for list, want := range map[string]string{
		resources(`{"resourceName": "hca", "resourcePrefix": "rdma", "checkHealthOnPf": true}`): "0000:82:00.0",
		sharing(`{"checkHealthOnPf": true, ` + twoPool[1:]):                                     "0000:82:00.0::0",
	} {
		s := twoHCAs()
		for state, fault := range map[string]string{"down": "no carrier on the PF", "up": "", "": ""} {
			s.Write(functions.Dir("0000:82:00.0")+"/net/ens2/operstate", state)
			got := state82(find(t, s.FS(), list, "intel.com", nil))
			if got != strings.TrimSpace(want+" "+fault) {
				t.Errorf("%s: %q", state, got)
			}
		}
		s.Remove(functions.Dir("0000:82:00.0") + "/net/ens2") // in a container
		if got := state82(find(t, s.FS(), list, "intel.com", nil)); got != want {
			t.Errorf("without a netdev: %q", got)
		}
	}
}

// state82 is the first device on bus 82.
func state82(v *VFs) string {
	lines := state(v, "rdma/hca")
	return lines[slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, "0000:82") })]
}
