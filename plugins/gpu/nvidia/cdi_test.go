// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package nvidia

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/test/nvml"
)

// install puts what a driver installs below the driver root: a few libraries and programs, and device nodes,
// which take root.
func (n *node) install(t *testing.T) {
	t.Helper()
	for _, file := range []string{
		"usr/lib64/libcuda.so.570.86.15", "usr/lib64/libnvidia-ptxjitcompiler.so.570.86.15", "usr/bin/nvidia-smi",
	} {
		path := filepath.Join(n.Root, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	nodes := []string{
		"nvidiactl", "nvidia-uvm", "gdrdrv", "infiniband/rdma_cm", "infiniband/uverbs0", "infiniband/uverbs1",
		"nvidia-caps-imex-channels/channel0",
	}
	for i := range n.Machine.GPUs {
		nodes = append(nodes, "nvidia"+string(rune('0'+i)))
	}
	for i, node := range nodes {
		path := filepath.Join(n.Root, "dev", node)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mknod(path, syscall.S_IFCHR|0o666, 195<<8|i); err != nil {
			t.Skipf("device nodes cannot be made here: mknod: %v", err)
		}
	}
}

// specification is what matters in a CDI specification.
type specification struct {
	Kind    string
	Devices []struct {
		Name           string
		ContainerEdits edits
	}
	ContainerEdits edits
}

type edits struct {
	Env         []string
	DeviceNodes []struct{ Path, HostPath string }
	Mounts      []struct{ HostPath, ContainerPath string }
}

func (n *node) specification(t *testing.T, class string) specification {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(n.cdiRoot, "k8s.device-plugin.nvidia.com-"+class+".json"))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", content)
	var s specification
	if err := json.Unmarshal(content, &s); err != nil {
		t.Fatal(err)
	}
	if want := "k8s.device-plugin.nvidia.com/" + class; s.Kind != want {
		t.Errorf("kind %s, want %s", s.Kind, want)
	}
	return s
}

func (s specification) names() []string {
	var names []string
	for _, d := range s.Devices {
		names = append(names, d.Name)
	}
	return names
}

// uuids are those of some GPUs, in the order of a specification.
func (n *node) uuids(indices ...int) []string {
	var list []string
	for _, i := range indices {
		list = append(list, n.Machine.GPUs[i].UUID)
	}
	slices.Sort(list)
	return list
}

func TestCDI(t *testing.T) {
	t.Attr("parity", "nvidia/cdi-spec-file")
	n := record(t, "nv-a100pcie-cx6dx-vf-partial", nil)
	n.install(t)
	backend, _ := n.discover(t, "--device-list-strategy=cdi-cri,cdi-annotations",
		"--driver-root=/run/nvidia/driver", "--gdrcopy-enabled", "--gds-enabled", "--mofed-enabled",
		"--imex-channel-ids=0")
	s := n.specification(t, "gpu")
	if got := s.names(); !slices.Equal(got, n.uuids(0, 1, 2, 3)) {
		t.Errorf("devices %v, want %v", got, n.uuids(0, 1, 2, 3))
	}
	third := slices.Index(s.names(), n.Machine.GPUs[2].UUID)
	if node := s.Devices[third].ContainerEdits.DeviceNodes[0]; node.Path != "/dev/nvidia2" ||
		node.HostPath != "/run/nvidia/driver/dev/nvidia2" {
		t.Errorf("device node %+v", node)
	}
	if !slices.ContainsFunc(s.ContainerEdits.Mounts, func(m struct{ HostPath, ContainerPath string }) bool {
		return m.HostPath == "/run/nvidia/driver/usr/lib64/libcuda.so.570.86.15" &&
			m.ContainerPath == "/usr/lib64/libcuda.so.570.86.15"
	}) {
		t.Errorf("mounts %+v", s.ContainerEdits.Mounts)
	}
	for class, name := range map[string]string{"imex-channel": "0", "gdrcopy": "all", "mofed": "all"} {
		if got := n.specification(t, class).names(); !slices.Equal(got, []string{name}) {
			t.Errorf("%s: devices %v", class, got)
		}
	}
	want := []string{"gdrcopy=all", "mofed=all"} // of GDS nothing is installed
	for i := range want {
		want[i] = "k8s.device-plugin.nvidia.com/" + want[i]
	}
	if diff := cmp.Diff(want, backend.extras); diff != "" {
		t.Error(diff)
	}
}

func TestCDIByIndex(t *testing.T) {
	n := record(t, "nv-a100pcie-cx6dx-vf-partial", nil)
	n.install(t)
	n.discover(t, "--device-list-strategy=cdi-cri", "--device-id-strategy=index")
	if got := n.specification(t, "gpu").names(); !slices.Equal(got, []string{"0", "1", "2", "3"}) {
		t.Errorf("devices %v", got)
	}
}

func TestCDIWithLostGPU(t *testing.T) {
	n := record(t, "nv-a100pcie-cx6dx-vf-partial", func(m *nvml.Machine) { m.GPUs[1].State = nvml.GPUIsLost })
	n.install(t)
	backend, _ := n.discover(t, "--device-list-strategy=cdi-cri")
	if got := n.specification(t, "gpu").names(); !slices.Equal(got, n.uuids(0, 2, 3)) {
		t.Errorf("devices %v", got)
	}
	n.Machine.GPUs[1].State = 0
	n.Update(t)
	later(t, backend)
	if got := n.specification(t, "gpu").names(); !slices.Equal(got, n.uuids(0, 1, 2, 3)) {
		t.Errorf("devices %v once it answers", got)
	}
}

// The specifications are kept what they should be: whoever removes one, and whatever driver is there after it
// was reloaded, with the same GPUs.
func TestCDISpecificationsAreKept(t *testing.T) {
	n := record(t, "nv-a100pcie-cx6dx-vf-partial", nil)
	n.install(t)
	backend, _ := n.discover(t, "--device-list-strategy=cdi-cri", "--gdrcopy-enabled")
	file := func(class string) string {
		return filepath.Join(n.cdiRoot, "k8s.device-plugin.nvidia.com-"+class+".json")
	}
	info := func(class string) os.FileInfo {
		t.Helper()
		info, err := os.Stat(file(class))
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	before := info("gpu")
	later(t, backend)
	if !os.SameFile(before, info("gpu")) {
		t.Error("written anew although it says the same")
	}
	due := watch(t, backend)
	for name, harm := range map[string]func() error{
		"removed": func() error { return os.Remove(file("gpu")) },
		"other":   func() error { return os.WriteFile(file("gdrcopy"), []byte("{}"), 0o600) },
		"all":     func() error { return os.RemoveAll(n.cdiRoot) },
	} {
		for !backend.areIntact() || len(due) > 0 { // what Watch begins with
			<-due
			later(t, backend)
		}
		if err := harm(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-due:
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: no sign of a change", name)
		}
		later(t, backend)
		if got := n.specification(t, "gpu").names(); !slices.Equal(got, n.uuids(0, 1, 2, 3)) {
			t.Errorf("%s: devices %v", name, got)
		}
		n.specification(t, "gdrcopy")
	}
	libraries := filepath.Join(n.Root, "usr/lib64")
	if err := os.Rename(filepath.Join(libraries, "libcuda.so.570.86.15"),
		filepath.Join(libraries, "libcuda.so.580.65.06")); err != nil {
		t.Fatal(err)
	}
	n.Machine.Driver = "580.65.06"
	n.Update(t)
	later(t, backend)
	if !slices.ContainsFunc(n.specification(t, "gpu").ContainerEdits.Mounts,
		func(m struct{ HostPath, ContainerPath string }) bool {
			return strings.HasSuffix(m.HostPath, "/libcuda.so.580.65.06")
		}) {
		t.Error("another driver has another library, and the specification has that of the one before")
	}
}

// full is a library that cannot write CDI specifications while it has an error.
type full struct {
	library
	err error
}

func (f *full) writeSpecs(s specs) ([]string, error) {
	if f.err != nil {
		return nil, f.err
	}
	return f.library.writeSpecs(s)
}

// Specifications that could not be written are due again, though those of before are there as they were.
func TestCDISpecificationsAreWrittenLater(t *testing.T) {
	n := record(t, "nv-a100pcie-cx6dx-vf-partial", nil)
	n.install(t)
	backend, _ := n.discover(t, "--device-list-strategy=cdi-cri")
	disk := &full{library: backend.lib, err: errors.New("no space left on device")}
	backend.lib = disk
	later(t, backend)
	if backend.areIntact() {
		t.Error("what could not be written is taken for written")
	}
	disk.err = nil
	later(t, backend)
	if !backend.areIntact() {
		t.Error("it is written, and due again")
	}
}
