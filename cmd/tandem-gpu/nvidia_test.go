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
	n := nvidiaNode(t, "nv-h800-8x8", mixed)
	kubelet := kubelettest.Start(t, n.dir)
	p := execute(t, "tandem-gpu", nil, n.tandem("--mig-strategy=mixed", "--pass-device-specs")...)
	want := map[string]int{"nvidia.com/gpu": 4, "nvidia.com/mig-1g.10gb": 14, "nvidia.com/mig-3g.40gb": 4}
	got := map[string]int{}
	for range want {
		plugin := kubelettest.Await(t, kubelet.Plugins)
		devices := kubelettest.Await(t, plugin.Lists)
		got[plugin.Request.GetResourceName()] = len(devices)
		if !plugin.Options.GetGetPreferredAllocationAvailable() || plugin.Options.GetPreStartRequired() {
			t.Errorf("options %v", plugin.Options)
		}
		allocate(t, plugin, devices)
	}
	if !maps.Equal(got, want) {
		t.Errorf("devices %v, want %v", got, want)
	}
	if kib := p.Status(t, "VmRSS"); kib > 40<<10 {
		t.Errorf("%d KiB resident, want 40 MiB at most", kib)
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
	_, _, plugin := n.offers(t, nil, "--config-file="+file, "--xid-recovery")
	await(t, plugin, "32")
	bad := n.Machine.GPUs[2].UUID
	n.Machine.GPUs[2].Recovery = 1
	n.Update(t)
	n.Event(t, bad, nvml.Xid, 31, nvml.None, nvml.None) // an application's fault
	n.Event(t, bad, nvml.Xid, 48, nvml.None, nvml.None)
	for _, d := range await(t, plugin, "32, 4 unhealthy") {
		if (d.GetHealth() == v1beta1.Healthy) == strings.HasPrefix(d.GetID(), bad) {
			t.Errorf("%s is %s", d.GetID(), d.GetHealth())
		}
	}
	n.Machine.GPUs[2].Recovery = 0
	n.Update(t)
	n.Event(t, bad, nvml.RecoveryAction, 0, nvml.None, nvml.None)
	await(t, plugin, "32")
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
	if log := p.Log(); !strings.Contains(log, "the running one stays in use") {
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

// TestFileForNVIDIA: AMD's GPUs have no configuration file. An existing file is for other nodes; a missing
// one is an error.
func TestFileForNVIDIA(t *testing.T) {
	n := nvidiaNode(t, "oci-mi300x-derived", nil)
	file := filepath.Join(t.TempDir(), "config.yaml")
	write(t, file, "version: v1")
	_, p, plugin := n.offers(t, nil, "--config-file="+file)
	await(t, plugin, "8")
	if text := p.Log(); strings.Count(text, "configuration file ignored") != 1 {
		t.Error(text)
	}
}

// TestNVMLFailsForAMoment: after discoveries that fail while NVML's events work, the GPUs are healthy again
// as soon as NVML lists them, without another event.
func TestNVMLFailsForAMoment(t *testing.T) {
	for name, c := range map[string]struct {
		failures  int
		variables []string
	}{
		"two discoveries fail":                       {2, nil},
		"one discovery fails, without health checks": {1, []string{"DP_DISABLE_HEALTHCHECKS=all"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := nvidiaNode(t, "nv-h100-oci", nil)
			first := newFatal(t, filepath.Join(n.dir, "sys"), n.Machine.GPUs[0].Address.String())
			second := newFatal(t, filepath.Join(n.dir, "sys"), n.Machine.GPUs[1].Address.String())
			_, _, plugin := n.offers(t, c.variables)
			await(t, plugin, "8")
			first.increase(t)
			await(t, plugin, "8, 1 unhealthy") // the discoveries of the start are over
			n.Machine.Uncounted = c.failures
			n.Update(t)
			second.increase(t)
			for limit := time.After(kubelettest.Limit); ; {
				select {
				case devices := <-plugin.Lists:
					if health(devices) == "8, 2 unhealthy" {
						return
					}
				case <-limit:
					t.Fatal("NVML lists all GPUs, and for seconds they are unhealthy")
				}
			}
		})
	}
}

func TestDriverUnloads(t *testing.T) {
	n := nvidiaNode(t, "nv-h100-oci", nil)
	_, _, plugin := n.offers(t, nil)
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
