// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/tandem-k8s/tandem/plugins/deviceplugin"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/test/functions"
	"github.com/tandem-k8s/tandem/topology"
)

// withCDI offers a machine through CDI.
func withCDI(
	t *testing.T, s functions.Sysfs, dev fstest.MapFS, prefix, list string, field bool,
) (*Plugin, string) {
	t.Helper()
	p, _ := offered(t, s, dev, prefix, list)
	dir := t.TempDir()
	p.host.CDI = &CDI{Dirs: []string{t.TempDir(), dir}, Field: field}
	p.restoreFiles(nil)
	return p, dir
}

// The bytes that the stock plugin gives for the same device: the spec with its name and mode, and the
// annotation.
func TestCDIGolden(t *testing.T) {
	t.Attr("parity", "sriov/cdi-mode")
	p, dir := withCDI(t, rdmaVF(), devices("infiniband/rdma_cm"), "nvidia.com", resources(rdmaPool), false)
	file := filepath.Join(dir, "sriov-dp-nvidia.com-net-pci-sriov-rdma-vf.yaml")
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var nodes strings.Builder
	for _, node := range []string{"issm5", "umad5", "uverbs5", "rdma_cm"} {
		path := "/dev/infiniband/" + node
		nodes.WriteString("    - hostPath: " + path + "\n      path: " + path + "\n      permissions: rw\n")
	}
	want := "---\ncdiVersion: 0.5.0\ncontainerEdits: {}\ndevices:\n- containerEdits:\n    deviceNodes:\n" +
		nodes.String() +
		"  name: 0000:86:02.3\nkind: nvidia.com/net-pci\n"
	if diff := cmp.Diff(want, string(content)); diff != "" {
		t.Error(diff)
	}
	if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
		t.Errorf("spec has mode %v, %v; want 0600", info.Mode(), err)
	}
	got, err := respond(t.Context(), p, []string{"0000:86:02.3"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"cdi.k8s.io/nvidia.com_net-pci": "nvidia.com/net-pci=0000:86:02.3"},
		got.Annotations); diff != "" {
		t.Error(diff)
	}
	if len(got.Devices)+len(got.Mounts)+len(got.CdiDevices) > 0 ||
		got.Envs["PCIDEVICE_NVIDIA_COM_SRIOV-RDMA-VF"] != "0000:86:02.3" {
		t.Errorf("answer %v", got)
	}
	if _, err := os.Stat(p.host.DevinfoPath(p.name, "0000:86:02.3")); err != nil {
		t.Error(err)
	}
}

// What a runtime makes of specs and answer: the device nodes of the devices named, whichever way they are
// named.
func TestCDIResolves(t *testing.T) {
	t.Attr("parity", "sriov/cdi-collision")
	s := functions.New()
	s.PF(0x81, "ens1", 4, nil)
	two := resources(`{"resourceName": "a", "selectors": {"isRdma": true, "pfNames": ["ens1#0-1"]}}`,
		`{"resourceName": "b", "selectors": {"isRdma": true}}`)
	keys := map[string]string{
		"intel.com/a": "cdi.k8s.io/intel.com_net-pci", "intel.com/b": "cdi.k8s.io/intel.com_net-pci_b",
	}
	dir := t.TempDir()
	for _, field := range []bool{false, true} {
		for i, id := range []string{"0000:81:00.2", "0000:81:00.3"} {
			first, _ := offered(t, s, nil, "intel.com", two)
			p := NewPlugin(first.vfs.Names()[i], first.vfs, first.host, newRecorder(), first.log)
			p.host.CDI = &CDI{Dirs: []string{dir}, Field: field}
			p.restoreFiles(nil)
			got, err := respond(t.Context(), p, []string{id})
			if err != nil {
				t.Fatal(err)
			}
			names := cdiNames(got, keys[p.name])
			if field != (len(got.CdiDevices) == 1) || len(names) != 1 {
				t.Fatalf("%s is named %v in %v", id, names, got)
			}
			cache, err := cdi.NewCache(cdi.WithSpecDirs(dir), cdi.WithAutoRefresh(false))
			if err != nil {
				t.Fatal(err)
			}
			device := cache.GetDevice(names[0])
			if device == nil || device.Name != id || len(device.ContainerEdits.DeviceNodes) != 3 {
				t.Errorf("%s resolves to %+v; errors %v", names[0], device, cache.GetErrors())
			}
		}
	}
}

func cdiNames(answer *v1beta1.ContainerAllocateResponse, key string) []string {
	var names []string
	for _, d := range answer.CdiDevices {
		names = append(names, d.Name)
	}
	if value := answer.Annotations[key]; value != "" {
		names = append(names, strings.Split(value, ",")...)
	}
	return names
}

// A device without nodes costs itself, not the pool, and a pool of such devices has no spec.
func TestCDIWithoutNodes(t *testing.T) {
	t.Attr("parity", "sriov/cdi-empty-edits")
	s := functions.New()
	s.PF(0x81, "ens1", 2, nil)
	// of a driver that is being bound
	for _, class := range []string{"infiniband", "infiniband_verbs", "infiniband_mad"} {
		s.Remove(functions.Dir("0000:81:00.2") + "/" + class)
	}
	s.Write(functions.Dir("0000:81:00.2")+"/mlx5_core.rdma.2/uevent", "")
	p, _ := withCDI(t, s, nil, "intel.com", resources(`{"resourceName": "a", "selectors": {"isRdma": true}}`),
		false)
	got, err := respond(t.Context(), p, []string{"0000:81:00.1", "0000:81:00.2"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"cdi.k8s.io/intel.com_net-pci": "intel.com/net-pci=0000:81:00.1"},
		got.Annotations); diff != "" {
		t.Error(diff)
	}
	p, folder := withCDI(t, s, nil, "intel.com", resources(`{"resourceName": "a"}`), false)
	if got, err := respond(t.Context(), p, []string{"0000:81:00.1"}); err != nil || got.Annotations != nil {
		t.Errorf("a plain netdev: %v, %v", got, err)
	}
	if entries, err := os.ReadDir(folder); err != nil || len(entries) > 0 {
		t.Errorf("specs %v, %v", entries, err)
	}
}

// A container that holds a VF in exclusive mode may start again after the plugin did, with the answer that
// the kubelet keeps: the spec has its VF.
func TestCDIOfHeldVF(t *testing.T) {
	for _, exclusive := range []bool{false, true} {
		s := rdmaVF()
		s.Write(functions.Dir("0000:86:02.3")+"/mlx5_core.rdma.3/uevent", "")
		s.Hide("0000:86:02.3", exclusive)
		_, folder := withCDI(t, s, devices("infiniband/rdma_cm"), "intel.com", resources(rdmaPool), false)
		content, err := os.ReadFile(filepath.Join(folder, "sriov-dp-intel.com-net-pci-sriov-rdma-vf.yaml"))
		for _, node := range []string{"issm5", "umad5", "uverbs5", "rdma_cm"} {
			if err != nil || !strings.Contains(string(content), "path: /dev/infiniband/"+node+"\n") {
				t.Errorf("exclusive %v: no %s in spec %s, %v", exclusive, node, content, err)
			}
		}
	}
}

// The file of the spec is kept what it should be while the plugin runs, whatever becomes of it: the stock
// plugin and its operator remove it, and device nodes are numbered anew when a driver is bound, which
// changes nothing else of a device.
func TestCDISpecIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := rdmaVF()
		p, folder := withCDI(t, s, nil, "intel.com", resources(rdmaPool), false)
		file := filepath.Join(folder, "sriov-dp-intel.com-net-pci-sriov-rdma-vf.yaml")
		keepFiles(t, p)
		whole, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(whole), "name: 0000:86:02.3") {
			t.Fatalf("spec %s, %v", whole, err)
		}
		want := func(what, want string) {
			t.Helper()
			synctest.Wait()
			if got, err := os.ReadFile(file); err != nil || string(got) != want {
				t.Errorf("%s: spec %s, %v", what, got, err)
			}
		}
		for what, harm := range map[string]func() error{
			"removed":  func() error { return os.Remove(file) },
			"other":    func() error { return os.WriteFile(file, []byte("---\n"), 0o600) },
			"cleaned":  func() error { return p.host.CDI.CleanUp(p.vfs.config) },
			"of a dir": func() error { return os.RemoveAll(folder) },
		} {
			if err := harm(); err != nil {
				t.Fatal(err)
			}
			<-time.After(filesPause)
			want(what, string(whole))
		}
		for class, node := range map[string]string{"infiniband_mad": "umad", "infiniband_verbs": "uverbs"} {
			s.Remove(functions.Dir("0000:86:02.3") + "/" + class)
			s.Write(functions.Dir("0000:86:02.3")+"/"+class+"/"+node+"77/ibdev", "mlx5_5")
		}
		scan(t, p.vfs)
		renumbered := strings.NewReplacer("uverbs5", "uverbs77", "umad5", "umad77").Replace(string(whole))
		issm := "    - hostPath: /dev/infiniband/issm5\n      path: /dev/infiniband/issm5\n      permissions: rw\n"
		want("numbered anew", strings.Replace(renumbered, issm, "", 1))
	})
}

// keepFiles runs the part of a plugin that keeps its files until the end of a test in a bubble.
func keepFiles(t *testing.T, p *Plugin) {
	t.Helper()
	runs(t, func(ctx context.Context) error { return p.Watch(ctx, func([]deviceplugin.Device) {}) })
	synctest.Wait()
}

// A container may start again whatever is wrong with its VF at that moment.
func TestCDISpecHasUnhealthyVF(t *testing.T) {
	p, folder := withCDI(t, rdmaVF(), nil, "intel.com", resources(rdmaPool), false)
	pool, _ := p.vfs.latestPool(p.name)
	pool.Devices = slices.Clone(pool.Devices)
	pool.Devices[0].Fault = "link down"
	p.vfs.pools[p.name] = pool
	p.restoreFiles(nil)
	content, err := os.ReadFile(filepath.Join(folder, "sriov-dp-intel.com-net-pci-sriov-rdma-vf.yaml"))
	if err != nil || !strings.Contains(string(content), "name: 0000:86:02.3") {
		t.Errorf("spec %s, %v", content, err)
	}
}

// What is removed at the start are the specs of pools that are no more: those that there are may be in use,
// and without CDI none is.
func TestCDISpecsOfOtherPools(t *testing.T) {
	p, folder := withCDI(t, rdmaVF(), nil, "intel.com", resources(rdmaPool), false)
	for _, name := range []string{"sriov-dp-old.yaml", "other.yaml"} {
		if err := os.WriteFile(filepath.Join(folder, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	all, _ := p.vfs.All()
	for _, step := range []struct {
		pools []pools.Pool
		want  []string
	}{
		{all, []string{"other.yaml", "sriov-dp-intel.com-net-pci-sriov-rdma-vf.yaml"}},
		{nil, []string{"other.yaml"}},
	} {
		if err := p.host.CDI.CleanUp(p.vfs.config, step.pools...); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(step.want, topology.Names(os.DirFS(folder), ".")); diff != "" {
			t.Error(diff)
		}
	}
}

// While the folder of the specs cannot be written an Allocate is an error that says so. Once it can, the next
// Allocate writes the spec of all devices of the pool: running pods refer to those that nobody asks for.
func TestCDIFolderThatCanBeWrittenLater(t *testing.T) {
	t.Attr("parity", "sriov/cdi-mode")
	s := functions.New()
	s.PF(0x81, "ens1", 2, nil)
	for name, writtenBefore := range map[string]bool{"at the start": false, "later": true} {
		t.Run(name, func(t *testing.T) {
			p, _ := offered(t, s, nil, "intel.com", resources(`{"resourceName": "a", "selectors": {"isRdma": true}}`))
			dir := filepath.Join(t.TempDir(), "cdi")
			p.host.CDI = &CDI{Dirs: []string{dir}}
			if writtenBefore {
				p.restoreFiles(nil)
				if err := os.RemoveAll(dir); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(dir, nil, 0o600); err != nil { // in the place of the folder
				t.Fatal(err)
			}
			p.restoreFiles(nil)
			if _, err := p.Allocate(t.Context(), []string{"0000:81:00.1"}); err == nil ||
				!strings.Contains(err.Error(), "write CDI spec") {
				t.Errorf("without a folder: error %v", err)
			}
			if err := os.Remove(dir); err != nil {
				t.Fatal(err)
			}
			if _, err := p.Allocate(t.Context(), []string{"0000:81:00.1"}); err != nil {
				t.Error(err)
			}
			cache, err := cdi.NewCache(cdi.WithSpecDirs(dir), cdi.WithAutoRefresh(false))
			if err != nil {
				t.Fatal(err)
			}
			for _, id := range []string{"0000:81:00.1", "0000:81:00.2"} {
				if cache.GetDevice("intel.com/net-pci="+id) == nil {
					t.Errorf("%s is in no spec", id)
				}
			}
		})
	}
}

// Device nodes are numbered anew when a driver is bound: the spec says what is true at the time of the
// Allocate.
func TestCDISpecIsRenewed(t *testing.T) {
	s := rdmaVF()
	p, folder := withCDI(t, s, nil, "intel.com", resources(rdmaPool), false)
	for class, node := range map[string]string{"infiniband_mad": "umad", "infiniband_verbs": "uverbs"} {
		s.Remove(functions.Dir("0000:86:02.3") + "/" + class)
		s.Write(functions.Dir("0000:86:02.3")+"/"+class+"/"+node+"77/ibdev", "mlx5_5")
	}
	if _, err := p.Allocate(t.Context(), []string{"0000:86:02.3"}); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(folder, "sriov-dp-intel.com-net-pci-sriov-rdma-vf.yaml"))
	if err != nil || strings.Count(string(content), "uverbs77") != 2 ||
		strings.Contains(string(content), "uverbs5") {
		t.Errorf("spec %s, %v", content, err)
	}
}
