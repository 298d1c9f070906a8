// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/cmd/internal/gpus"
	"github.com/tandem-k8s/tandem/test/kubelettest"
	"github.com/tandem-k8s/tandem/test/nvml"
)

// health writes a device list as "8", or "8, 2 unhealthy".
func health(devices []*v1beta1.Device) string {
	bad := 0
	for _, d := range devices {
		if d.GetHealth() != v1beta1.Healthy {
			bad++
		}
	}
	if bad == 0 {
		return fmt.Sprint(len(devices))
	}
	return fmt.Sprintf("%d, %d unhealthy", len(devices), bad)
}

// await waits for a matching device list.
func await(t *testing.T, plugin *kubelettest.Plugin, want string) []*v1beta1.Device {
	t.Helper()
	for {
		devices := kubelettest.Await(t, plugin.Lists)
		if health(devices) == want {
			return devices
		}
	}
}

func mixed(m *nvml.Machine) { // half of the GPUs in parts, two ways
	for i := range 4 {
		m.GPUs[i].Split(7-5*(i%2), 2*(i%2), 9984+30336*uint64(i%2))
	}
}

func TestNVIDIA(t *testing.T) {
	t.Attr("parity", "nvidia/resource-name")
	t.Attr("parity", "nvidia/plugin-options")
	for _, c := range []struct {
		machine string
		change  func(*nvml.Machine)
		args    []string
		want    map[string]int // devices by resource
	}{
		{"nv-h100-oci", nil, nil, map[string]int{"nvidia.com/gpu": 8}},
		{"nv-h100-aws-p5", nil, nil, map[string]int{"nvidia.com/gpu": 8}},
		{"nv-h200-vm-flat", nil, nil, map[string]int{"nvidia.com/gpu": 8}},
		{"nv-h800-8x8", mixed, []string{"--mig-strategy=mixed", "--pass-device-specs"},
			map[string]int{"nvidia.com/gpu": 4, "nvidia.com/mig-1g.10gb": 14, "nvidia.com/mig-3g.40gb": 4}},
	} {
		t.Run(c.machine, func(t *testing.T) {
			n := nvidiaNode(t, c.machine, c.change)
			kubelet := kubelettest.Start(t, n.dir)
			began := time.Now()
			p := execute(t, "tandem-gpu", nil, n.tandem(c.args...)...)
			got := map[string]int{}
			for range c.want {
				plugin := kubelettest.Await(t, kubelet.Plugins)
				took := time.Since(began)
				devices := kubelettest.Await(t, plugin.Lists)
				got[plugin.Request.GetResourceName()] = len(devices)
				t.Logf("%s registered after %s", plugin.Request.GetResourceName(), took)
				if !plugin.Options.GetGetPreferredAllocationAvailable() || plugin.Options.GetPreStartRequired() {
					t.Errorf("options %v", plugin.Options)
				}
				allocate(t, plugin, devices)
			}
			if !maps.Equal(got, c.want) {
				t.Errorf("devices %v, want %v", got, c.want)
			}
			kib := p.resident(t)
			t.Logf("%.1f MiB resident", float64(kib)/1024)
			if kib > 40<<10 {
				t.Errorf("%d KiB resident, want 40 MiB at most", kib)
			}
		})
	}
}

// allocate allocates all devices; every one must be in the answer.
func allocate(t *testing.T, plugin *kubelettest.Plugin, devices []*v1beta1.Device) {
	t.Helper()
	var ids []string
	for _, d := range devices {
		ids = append(ids, d.GetID())
		if d.GetHealth() != v1beta1.Healthy {
			t.Errorf("%s is %s", d.GetID(), d.GetHealth())
		}
	}
	preferred, err := plugin.Prefer(t.Context(), ids, nil, 2)
	if err != nil || len(preferred) != 2 {
		t.Errorf("preferred %v, %v", preferred, err)
	}
	answer, err := plugin.Allocate(t.Context(), ids...)
	if err != nil {
		t.Fatal(err)
	}
	visible := strings.Split(answer.GetEnvs()["NVIDIA_VISIBLE_DEVICES"], ",")
	slices.Sort(visible)
	if !slices.Equal(visible, ids) {
		t.Errorf("visible %v, want %v", visible, ids)
	}
}

func TestXidToKubelet(t *testing.T) {
	t.Attr("parity", "nvidia/health-xid")
	t.Attr("parity", "nvidia/health-recovery")
	t.Attr("parity", "nvidia/health-replicas")
	n := nvidiaNode(t, "nv-h100-oci", nil)
	file := filepath.Join(n.dir, "config.yaml")
	write(t, file, "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}")
	kubelet := kubelettest.Start(t, n.dir)
	execute(t, "tandem-gpu", nil, n.tandem("--config-file="+file, "--xid-recovery")...)
	plugin := kubelettest.Await(t, kubelet.Plugins)
	await(t, plugin, "32")
	bad := n.Machine.GPUs[2].UUID
	n.Machine.GPUs[2].Recovery = 1
	n.Update(t)
	n.Event(t, bad, nvml.Xid, 31, nvml.None, nvml.None) // an application's fault
	began := time.Now()
	n.Event(t, bad, nvml.Xid, 48, nvml.None, nvml.None)
	for _, d := range await(t, plugin, "32, 4 unhealthy") {
		if (d.GetHealth() == v1beta1.Healthy) == strings.HasPrefix(d.GetID(), bad) {
			t.Errorf("%s is %s", d.GetID(), d.GetHealth())
		}
	}
	t.Logf("the kubelet knows %s after the event", time.Since(began))
	n.Machine.GPUs[2].Recovery = 0
	n.Update(t)
	n.Event(t, bad, nvml.RecoveryAction, 0, nvml.None, nvml.None)
	await(t, plugin, "32")
}

func TestDriverUnloads(t *testing.T) {
	n := nvidiaNode(t, "nv-h100-oci", nil)
	kubelet := kubelettest.Start(t, n.dir)
	execute(t, "tandem-gpu", nil, n.tandem()...)
	plugin := kubelettest.Await(t, kubelet.Plugins)
	devices := await(t, plugin, "8")
	n.Machine.Error = nvml.DriverNotLoaded
	n.Update(t)
	await(t, plugin, "8, 8 unhealthy")
	if answer, err := plugin.Allocate(t.Context(), devices[0].GetID()); err != nil ||
		answer.GetEnvs()["NVIDIA_VISIBLE_DEVICES"] != devices[0].GetID() {
		t.Errorf("allocate without a driver: %v, %v", answer, err)
	}
	n.Machine.Error = 0
	n.Update(t)
	await(t, plugin, "8")
}

// TestStockName starts tandem-gpu with the manifests of NVIDIA's plugin, and reloads it like config-manager.
func TestStockName(t *testing.T) {
	t.Attr("parity", "nvidia/config-manager-sighup")
	t.Attr("parity", "nvidia/kubelet-restart")
	t.Attr("parity", "nvidia/shared-rename")
	n := nvidiaNode(t, "nv-h100-oci", nil)
	file := filepath.Join(n.dir, "config.yaml")
	write(t, file, "version: v1\nflags: {migStrategy: mixed, plugin: {deviceListStrategy: volume-mounts, "+
		"deviceIDStrategy: uuid}}")
	kubelet := kubelettest.Start(t, n.dir)
	variables := []string{
		"CONFIG_FILE=" + file, "KUBELET_SOCKET=" + filepath.Join(kubelettest.Plugins(n.dir), "kubelet.sock"),
		"DEVICE_ID_STRATEGY=index", "NVIDIA_DEV_ROOT=/run/nvidia/driver",
	}
	p := execute(t, gpus.StockNVIDIA, variables,
		append(n.args, "--dev-root=/elsewhere", "--pass-device-specs=true")...)
	plugin := kubelettest.Await(t, kubelet.Plugins)
	devices := kubelettest.Await(t, plugin.Lists)
	answer, err := plugin.Allocate(t.Context(), devices[0].GetID())
	if err != nil || len(answer.GetMounts()) != 1 ||
		!strings.HasPrefix(answer.GetMounts()[0].GetContainerPath(), "/var/run/nvidia-container-devices/") ||
		strings.Contains(answer.GetMounts()[0].GetContainerPath(), "GPU-") {
		t.Errorf("answer %v, %v", answer, err)
	}
	if specs := answer.GetDevices(); len(specs) == 0 ||
		!strings.HasPrefix(specs[len(specs)-1].GetHostPath(), "/elsewhere/dev/nvidia") {
		t.Errorf("device nodes %v", specs)
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.Process.Pid))
	if name, _, _ := strings.Cut(string(line), "\x00"); err != nil || name != gpus.StockNVIDIA {
		t.Errorf("argv[0] %q, %v", name, err)
	}
	for _, c := range []struct{ file, resource, devices string }{
		{"sharing: {timeSlicing: {renameByDefault: true, resources: [{name: nvidia.com/gpu, replicas: 2}]}}",
			"nvidia.com/gpu.shared", "16"},
		{"{}", "nvidia.com/gpu", "8"},
	} {
		write(t, file, c.file)
		if err := p.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		plugin = kubelettest.Await(t, kubelet.Plugins)
		if got := plugin.Request.GetResourceName(); got != c.resource {
			t.Errorf("registered %s, want %s", got, c.resource)
		}
		await(t, plugin, c.devices)
	}
	kubelet.Recreate()
	plugin = kubelettest.Await(t, kubelet.Plugins)
	await(t, plugin, "8")
	write(t, file, "version: v2")
	if err := p.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	await(t, kubelettest.Await(t, kubelet.Plugins), "8")
	if log := p.text(); !strings.Contains(log, "the running one stays in use") {
		t.Error("the log does not tell of the wrong configuration")
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := p.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	await(t, kubelettest.Await(t, kubelet.Plugins), "8")
}

func TestNVIDIABadInput(t *testing.T) {
	t.Attr("parity", "nvidia/fail-on-init-error")
	n := nvidiaNode(t, "nv-a100pcie-cx6dx-vf-partial", func(m *nvml.Machine) { m.GPUs[1].Split(7, 0, 9984) })
	config := func(text string) string {
		file := filepath.Join(n.dir, fmt.Sprintf("%x.yaml", len(text)))
		write(t, file, text)
		return "--config-file=" + file
	}
	none := "--driver-root-ctr-path=" + t.TempDir()
	for _, c := range []struct {
		name string
		args []string
		want []string
	}{
		{"version", []string{config("version: v2")}, []string{"version", "v2", "want v1"}},
		{"list strategy", []string{"--device-list-strategy=envvar,cdi"},
			[]string{"--device-list-strategy", `"cdi"`, "cdi-cri"}},
		{"list strategy in the file", []string{config("flags: {plugin: {deviceListStrategy: [cdi]}}")},
			[]string{"flags.plugin.deviceListStrategy of ", "envvar"}},
		{"ID strategy", []string{"--device-id-strategy=name"}, []string{"--device-id-strategy", "uuid or index"}},
		{"MIG strategy", []string{"--mig-strategy=all"}, []string{"--mig-strategy", "none, single or mixed"}},
		{"replicas", []string{config("sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 1}]}}")},
			[]string{"replicas", "nvidia.com/gpu", "2 or more"}},
		{"MIG here, none there", []string{"--mig-strategy=single"},
			[]string{"GPU 1 (0000:9c:00.0)", "--mig-strategy=mixed"}},
		{"IMEX", []string{"--imex-channel-ids=0,1"}, []string{"--imex-channel-ids", "0 alone"}},
		{"IMEX channel missing", []string{"--imex-channel-ids=0", "--imex-required"},
			[]string{"IMEX channel 0", "nvidia-modprobe"}},
		{"no NVML", []string{none, "--fail-on-init-error"},
			[]string{"enter NVML: libnvidia-ml.so.1 cannot be opened", "--driver-root-ctr-path"}},
		{"no NVML for CDI", []string{none, "--device-list-strategy=cdi-cri", "--fail-on-init-error"},
			[]string{"enter NVML: libnvidia-ml.so.1 cannot be opened", "--driver-root-ctr-path"}},
		{"MPS", []string{config("sharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}")},
			[]string{"sharing.mps", "timeSlicing"}},
		{"MPS and no NVML",
			[]string{none, config("sharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 3}]}, " +
				"timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}")},
			[]string{"sharing.mps is not supported", "NVIDIA's own plugin on this node"}},
		{"no file", []string{"--config-file=" + filepath.Join(n.dir, "none.yaml")},
			[]string{"read the configuration", "none.yaml"}},
		{"socket elsewhere", []string{"--kubelet-socket=/tmp/kubelet.sock"},
			[]string{"--kubelet-socket", "device-plugins"}},
		{"device nodes", []string{"--dev-root=/nope"},
			[]string{"open --dev-root: stat /nope: no such file or directory"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			execute(t, "tandem-gpu", nil, n.tandem(c.args...)...).exits(t, 1, c.want...)
		})
	}
	for _, c := range []struct{ flag, want string }{
		{"--vendor=intel", "want amd, nvidia or auto"},
		{"--pulse=-1", "want a number of seconds"},
		{"--driver_type=vf-passthrough", "want container"},
		{"--nvidia-recheck=0s", "want a time such as 30s"},
		{"--nvidia-recheck=-1s", "want a time such as 30s"},
	} {
		t.Run(c.flag, func(t *testing.T) {
			name, _, _ := strings.Cut(c.flag, "=")
			execute(t, "tandem-gpu", nil, n.tandem(c.flag)...).exits(t, 2, name, c.want, "see tandem-gpu --help")
		})
	}
}

// TestFileForNVIDIA: AMD's GPUs have no configuration file. An existing file is for other nodes; a missing
// one is an error.
func TestFileForNVIDIA(t *testing.T) {
	flags := layout(t, "oci-mi300x-derived")
	if err := os.MkdirAll(flags.DevRoot, 0o750); err != nil {
		t.Fatal(err)
	}
	args := []string{
		"--sysfs-root=" + flags.SysfsRoot, "--dev-root=" + flags.DevRoot, "--kubelet-dir=" + flags.KubeletDir,
		"--run-dir=" + flags.RunDir,
	}
	execute(t, "tandem-gpu", nil, append(args, "--config-file=/nope")...).exits(t, 1,
		"--config-file, which is for NVIDIA GPUs", "/nope: no such file")
	execute(t, "tandem-gpu", nil, append(args, "--dev-root=/nope")...).exits(t, 1,
		"open --dev-root: stat /nope: no such file or directory")
	file := filepath.Join(t.TempDir(), "config.yaml")
	write(t, file, "version: v1")
	kubelet := kubelettest.Start(t, flags.KubeletDir)
	p := execute(t, "tandem-gpu", nil, append(args, "--config-file="+file)...)
	await(t, kubelettest.Await(t, kubelet.Plugins), "8")
	if text := p.text(); strings.Count(text, "configuration file ignored") != 1 {
		t.Error(text)
	}
}
