// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/plugins/deviceplugin"
	"github.com/tandem-k8s/tandem/test/functions"
	"github.com/tandem-k8s/tandem/test/kubelettest"
	"github.com/tandem-k8s/tandem/topology"
)

// onDisk offers a machine that is laid out as a folder, so that it can change.
func onDisk(t *testing.T, s functions.Sysfs, list string) (*Plugin, *recorder, string) {
	t.Helper()
	root := s.Folder(t)
	vfs := find(t, os.DirFS(root), list, "intel.com", MachineEvents(root, config(t, list)))
	member := newRecorder()
	host := Host{
		Sys: os.DirFS(root), Dev: os.DirFS(t.TempDir()), DevinfoDir: filepath.Join(t.TempDir(), "dp"),
	}
	return NewPlugin("intel.com/a", vfs, host, member, slog.New(slog.DiscardHandler)), member, root
}

// watch runs Watch for the time of a test, and looks for changes. It returns what is published to the
// kubelet.
func watch(t *testing.T, p *Plugin) <-chan []deviceplugin.Device {
	t.Helper()
	lists := make(chan []deviceplugin.Device, 16)
	runs(t, func(ctx context.Context) error {
		return p.Watch(ctx, func(list []deviceplugin.Device) { lists <- list })
	})
	runs(t, p.vfs.Run)
	return lists
}

// unplug removes a function as the kernel does: its folder goes, and the link to it.
func unplug(t *testing.T, root, id string) {
	t.Helper()
	if err := os.Remove(filepath.Join(root, topology.PCIDevices, id)); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(root, functions.Dir(id))); err != nil {
		t.Fatal(err)
	}
}

func TestWatchPublishesTwice(t *testing.T) {
	s := functions.New()
	s.PF(0x81, "ens1", 1, functions.Facts{"numa_node": "1"})
	s.PF(0x82, "ens2", 1, functions.Facts{"numa_node": "-1"})
	p, member, _ := onDisk(t, s, resources(`{"resourceName": "a"}`))
	if p.Name() != "intel.com/a" {
		t.Errorf("resource name %s", p.Name())
	}
	want := []deviceplugin.Device{
		{ID: "0000:81:00.1", Healthy: true, Nodes: []int{1}},
		{ID: "0000:82:00.1", Healthy: true},
	}
	if diff := cmp.Diff(want, <-watch(t, p)); diff != "" {
		t.Error(diff)
	}
	if member.awaited.Load() == 0 {
		t.Error("the kubelet knows of devices that the coordinator may not know yet")
	}
	announced := []device.Device{
		{ID: "0000:81:00.1", Address: topology.Address{Bus: 0x81, Function: 1}, NUMA: topology.Node(1),
			Healthy: true, Unit: topology.Unit{Name: "0000:81:00.1"}},
		{ID: "0000:82:00.1", Address: topology.Address{Bus: 0x82, Function: 1}, Healthy: true,
			Unit: topology.Unit{Name: "0000:82:00.1"}},
	}
	same := cmp.Comparer(func(a, b topology.NUMANode) bool { return a == b })
	if diff := cmp.Diff(announced, (<-member.published).Devices, same); diff != "" {
		t.Error(diff)
	}
}

// A pool without topology hides its NUMA nodes from both.
func TestWatchWithoutTopology(t *testing.T) {
	t.Attr("parity", "sriov/topology")
	s := functions.New()
	s.PF(0x81, "ens1", 1, nil)
	p, member, _ := onDisk(t, s, resources(`{"resourceName": "a", "excludeTopology": true}`))
	if list := <-watch(t, p); list[0].Nodes != nil {
		t.Errorf("the kubelet is told of NUMA nodes %v", list[0].Nodes)
	}
	if numa := (<-member.published).Devices[0].NUMA; numa != (topology.NUMANode{}) {
		t.Errorf("the coordinator is told of NUMA node %s", numa)
	}
}

// A VF that vanished is an error for who was to get it, and is no longer told of: whether it stays in the
// kubelet's list is the list's business.
func TestAllocateOfVanishedVF(t *testing.T) {
	s := functions.New()
	s.PF(0x81, "ens1", 3, nil)
	p, member, root := onDisk(t, s, resources(`{"resourceName": "a"}`))
	lists := watch(t, p)
	<-lists
	<-member.published
	unplug(t, root, "0000:81:00.2")
	unplug(t, root, "0000:81:00.3")
	const want = "allocate intel.com/a: device 0000:81:00.2 is gone: the node has no such function any more"
	if _, err := p.Allocate(t.Context(), []string{"0000:81:00.1", "0000:81:00.2"}); err == nil ||
		err.Error() != want {
		t.Errorf("error %v; want %s", err, want)
	}
	if len(member.failed) != 1 || len(member.returned) > 0 {
		t.Errorf("the coordinator was told of %v as failed, %v as returned", member.failed, member.returned)
	}
	list, announced := kubelettest.Await(t, lists), kubelettest.Await(t, member.published).Devices
	for len(list) > 1 { // the two may be noticed one by one
		list, announced = kubelettest.Await(t, lists), kubelettest.Await(t, member.published).Devices
	}
	if diff := cmp.Diff([]deviceplugin.Device{{ID: "0000:81:00.1", Healthy: true, Nodes: []int{0}}},
		list); diff != "" {
		t.Error(diff)
	}
	if len(announced) != 1 || !announced[0].Healthy {
		t.Errorf("announced %v", announced)
	}
	if len(member.allocated) > 0 {
		t.Errorf("the coordinator was told that %v are taken", member.allocated)
	}
	if _, err := p.Allocate(t.Context(), []string{"0000:81:00.1"}); err != nil {
		t.Errorf("the VF that is left: %v", err)
	}
}

// The kubelet offers vanished VFs until it has heard of them; the coordinator does not get to choose those.
func TestPreferWithoutVanishedVFs(t *testing.T) {
	t.Attr("parity", "sriov/preferred")
	s := functions.New()
	s.PF(0x81, "ens1", 4, nil)
	p, member, root := onDisk(t, s, resources(`{"resourceName": "a"}`))
	unplug(t, root, "0000:81:00.1")
	unplug(t, root, "0000:81:00.3")
	got := choose(t, p, p.name, []string{"0000:81:00.1", "0000:81:00.2", "0000:81:00.3", "0000:81:00.4"},
		[]string{"0000:81:00.3"}, 2)
	if diff := cmp.Diff([]string{"0000:81:00.2", "0000:81:00.3"}, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"0000:81:00.2", "0000:81:00.3", "0000:81:00.4"}, member.available); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"0000:81:00.1"}, member.vanished); diff != "" {
		t.Errorf("told of vanished devices: %s", diff)
	}
}

// If the VFs that are left are too few, the first choice stands: the coordinator cannot choose more.
func TestPreferOfTooFewVFs(t *testing.T) {
	s := functions.New()
	s.PF(0x81, "ens1", 3, nil)
	p, member, root := onDisk(t, s, resources(`{"resourceName": "a"}`))
	unplug(t, root, "0000:81:00.1")
	unplug(t, root, "0000:81:00.2")
	all := []string{"0000:81:00.1", "0000:81:00.2", "0000:81:00.3"}
	if got := choose(t, p, p.name, all, nil, 2); len(got) != 2 {
		t.Errorf("chosen %v", got)
	}
	if diff := cmp.Diff(all, member.available); diff != "" {
		t.Error(diff)
	}
}

func TestAllocateErrors(t *testing.T) {
	p, member, _ := onDisk(t, rdmaVF(), resources(`{"resourceName": "a"}`))
	const unknown = "allocate intel.com/a: device 0000:86:02.4 is not one of this resource"
	if _, err := p.Allocate(t.Context(), []string{"0000:86:02.3", "0000:86:02.4"}); err == nil ||
		err.Error() != unknown {
		t.Errorf("error %v; want %s", err, unknown)
	}
	// A file where the folder for device-info files should be.
	if err := os.RemoveAll(p.host.DevinfoDir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.host.DevinfoDir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const unwritable = "allocate intel.com/a: write device-info of 0000:86:02.3: "
	if _, err := p.Allocate(t.Context(), []string{"0000:86:02.3"}); err == nil ||
		!strings.HasPrefix(err.Error(), unwritable) {
		t.Errorf("error %v; want %s…", err, unwritable)
	}
	if len(member.allocated) > 0 {
		t.Errorf("the coordinator was told that %v are taken", member.allocated)
	}
}

// The kubelet fails the pod with the coordinator's sentence.
func TestAllocateReturnsTheRefusal(t *testing.T) {
	p, member, _ := onDisk(t, rdmaVF(), resources(`{"resourceName": "a"}`))
	member.refusal = errors.New("refuse intel.com/a 0000:86:02.3: container worker of pod team/train has it")
	if answer, err := p.Allocate(t.Context(), []string{"0000:86:02.3"}); !errors.Is(err, member.refusal) ||
		len(answer.Env)+len(answer.Nodes) > 0 {
		t.Errorf("answer %v, error %v", answer, err)
	}
}

// The file is written anew on every Allocate, with what is true then.
func TestDevinfoIsRenewed(t *testing.T) {
	t.Attr("parity", "sriov/devinfo-file")
	p, _, root := onDisk(t, rdmaVF(), resources(`{"resourceName": "a", "selectors": {"isRdma": true}}`))
	allocate := func(want string) {
		t.Helper()
		if _, err := p.Allocate(t.Context(), []string{"0000:86:02.3"}); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(filepath.Join(p.host.DevinfoDir, "intel.com-a-0000:86:02.3-device.json"))
		if err != nil || string(content) != want {
			t.Errorf("device-info %s, %v; want %s", content, err, want)
		}
	}
	allocate(`{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:86:02.3","rdma-device":"mlx5_5"}}`)
	infiniband := filepath.Join(root, functions.Dir("0000:86:02.3"), "infiniband")
	if err := os.Rename(filepath.Join(infiniband, "mlx5_5"), filepath.Join(infiniband, "mlx5_8")); err != nil {
		t.Fatal(err)
	}
	allocate(`{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:86:02.3","rdma-device":"mlx5_8"}}`)
	for _, class := range []string{infiniband, infiniband + "_verbs"} {
		if err := os.RemoveAll(class); err != nil {
			t.Fatal(err)
		}
	}
	allocate(`{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:86:02.3"}}`)
	entries, err := os.ReadDir(p.host.DevinfoDir)
	if err != nil || len(entries) != 1 {
		t.Errorf("the folder has %d files, %v; want the one", len(entries), err)
	}
}

// A removed device-info file of an idle machine returns while the plugin runs, also without CDI: Multus reads
// the file again when a container restarts.
func TestDevinfoIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := offered(t, rdmaVF(), nil, "intel.com", resources(rdmaPool))
		keepFiles(t, p)
		file := p.host.DevinfoPath(p.name, "0000:86:02.3")
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		<-time.After(filesPause)
		synctest.Wait()
		if _, err := os.Stat(file); err != nil {
			t.Error(err)
		}
	})
}

// Accelerators are nothing that Multus knows of.
func TestAcceleratorHasNoDevinfo(t *testing.T) {
	p, _, _ := onDisk(t, functions.Example(), resources(`{"resourceName": "a", "deviceType": "accelerator"}`))
	if _, err := p.Allocate(t.Context(), []string{"0000:87:00.0"}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(p.host.DevinfoDir); err == nil {
		t.Error("there is a device-info folder")
	}
}

// One line per Allocate, with the IDs in the order of the answer, and the container where it is known.
func TestAllocateLog(t *testing.T) {
	s := functions.New()
	s.PF(0x81, "ens1", 2, nil)
	p, _, _ := onDisk(t, s, resources(`{"resourceName": "a"}`))
	var log strings.Builder
	member := newRecorder()
	p = NewPlugin(p.name, p.vfs, p.host, member, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	})))
	for _, to := range []slog.Attr{{}, slog.String("container", "team/train-0/worker")} {
		member.to = to
		if _, err := p.Allocate(t.Context(), []string{"0000:81:00.1", "0000:81:00.2"}); err != nil {
			t.Fatal(err)
		}
	}
	const line = `level=INFO msg=allocated resource=intel.com/a devices="[0000:81:00.2 0000:81:00.1]"`
	if diff := cmp.Diff(line+"\n"+line+" container=team/train-0/worker\n", log.String()); diff != "" {
		t.Error(diff)
	}
}

// A boot takes the files for Multus and not the pods, whose devices nobody allocates again: the files are
// there before the kubelet hears of the devices. What is there already may know more, of a device in a
// container, and stays.
func TestDevinfoAfterABoot(t *testing.T) {
	t.Attr("parity", "sriov/devinfo-file")
	s := functions.New()
	s.PF(0x81, "ens1", 2, nil)
	p, _, _ := onDisk(t, s, resources(`{"resourceName": "a", "selectors": {"isRdma": true}}`))
	kept := p.host.DevinfoPath("intel.com/a", "0000:81:00.2")
	if err := os.MkdirAll(p.host.DevinfoDir, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(kept, []byte(`{"type":"kept"}`), 0o400); err != nil {
		t.Fatal(err)
	}
	<-watch(t, p)
	for file, want := range map[string]string{
		kept: `{"type":"kept"}`,
		p.host.DevinfoPath("intel.com/a",
			"0000:81:00.1"): `{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:81:00.1","rdma-device":"mlx5_1291"}}`,
	} {
		if content, err := os.ReadFile(file); err != nil || string(content) != want {
			t.Errorf("%s: %s, %v; want %s", file, content, err, want)
		}
	}
}
