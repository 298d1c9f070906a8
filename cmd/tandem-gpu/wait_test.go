// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tandem-k8s/tandem/cmd/internal/gpus"
	"github.com/tandem-k8s/tandem/test/kubelettest"
	"github.com/tandem-k8s/tandem/test/nvml"
	"github.com/tandem-k8s/tandem/test/programs"
)

// waits checks that a daemon waits without offering devices, that it passes liveness probes, and that on a
// machine with GPUs it is not ready, so that a rollout waits. The answer has the reason.
func waits(t *testing.T, p *programs.Process, kubelet *kubelettest.Kubelet, why ...string) {
	t.Helper()
	const message = "no GPU driver; offering no device until a driver is present"
	p.Until(t, func() bool { return strings.Contains(p.Log(), message) })
	select {
	case <-kubelet.Plugins:
		t.Fatal("it registered")
	default:
	}
	if code, said := p.Get(t, "/healthz"); code != http.StatusOK {
		t.Errorf("/healthz: %d, %s", code, said)
	}
	code, said := p.Get(t, "/readyz")
	if len(why) == 0 && code != http.StatusOK {
		t.Errorf("a node without GPU is not ready: %s", said)
	}
	for _, word := range why {
		if code != http.StatusServiceUnavailable || !strings.Contains(said, word) {
			t.Errorf("/readyz: %d, %s, want %q", code, said, word)
		}
	}
	t.Cleanup(func() {
		if n := strings.Count(p.Log(), message); n != 1 {
			t.Errorf("it says %d times that nothing is offered", n)
		}
	})
}

// TestNVIDIADriverComesLater: GPUs are offered once their driver is loaded, without SIGHUP or a restart.
func TestNVIDIADriverComesLater(t *testing.T) {
	t.Attr("parity", "nvidia/fail-on-init-error")
	n := nvidiaNode(t, "nv-h100-oci", nil)
	root := filepath.Join(t.TempDir(), "driver")
	args := n.tandem("--driver-root-ctr-path="+root, "--health-probe-bind-address=127.0.0.1:0")
	for name, variables := range map[string][]string{
		"no failing": {"FAIL_ON_INIT_ERROR=false"},
		"CDI":        {"DEVICE_LIST_STRATEGY=cdi-annotations,cdi-cri"},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "CDI" {
				installCDI(t, n)
			}
			kubelet := kubelettest.Start(t, n.dir)
			p := execute(t, "tandem-gpu", variables, append(args, "--vendor=nvidia")...)
			waits(t, p, kubelet, "8 GPUs of NVIDIA's on PCI", "NVML", "gpu.runtimeClassName", "gpu.driverRoot",
				"gpu.deviceListStrategy")
			if err := os.Symlink(n.Root, root); err != nil {
				t.Fatal(err)
			}
			await8(t, kubelet)
			if err := os.Remove(root); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// installCDI adds the files to a driver that a CDI specification must name.
func installCDI(t *testing.T, n *node) {
	t.Helper()
	installLibrary(t, n)
	makeDeviceNodes(t, n)
}

func installLibrary(t *testing.T, n *node) {
	t.Helper()
	write(t, filepath.Join(n.Root, "usr/lib64/libcuda.so.570.86.15"), "")
	write(t, filepath.Join(n.Root, "dev/placeholder"), "")
}

func makeDeviceNodes(t *testing.T, n *node) {
	t.Helper()
	for i := range n.Machine.GPUs {
		file := filepath.Join(n.Root, fmt.Sprint("dev/nvidia", i))
		if err := syscall.Mknod(file, syscall.S_IFCHR|0o666, 195<<8|i); err != nil {
			t.Skipf("device nodes cannot be made here: mknod: %v", err)
		}
	}
}

// await8 waits for the eight healthy GPUs of a machine.
func await8(t *testing.T, kubelet *kubelettest.Kubelet) {
	t.Helper()
	await(t, kubelettest.Await(t, kubelet.Plugins), "8")
}

// TestStockNameWaits: under the name of NVIDIA's plugin, which NVIDIA's chart and YAML start on every node,
// nothing is offered on a node without GPUs.
func TestStockNameWaits(t *testing.T) {
	t.Attr("parity", "nvidia/fail-on-init-error")
	n := nvidiaNode(t, "nv-h100-oci", func(m *nvml.Machine) { m.Error = nvml.DriverNotLoaded })
	kubelet := kubelettest.Start(t, n.dir)
	p := execute(t, gpus.StockNVIDIA, nil, append(n.args, "--health-probe-bind-address=127.0.0.1:0",
		"--kubelet-socket="+filepath.Join(kubelettest.Plugins(n.dir), "kubelet.sock"))...)
	waits(t, p, kubelet, "8 GPUs of NVIDIA's on PCI", "load NVIDIA's driver")
	n.Machine.Error = 0
	n.Update(t)
	await8(t, kubelet)
}

// TestOtherVendor: on a node whose GPUs are another vendor's than --vendor, the daemon is not ready, and the
// answer and the log name the value to set.
func TestOtherVendor(t *testing.T) {
	n := nvidiaNode(t, "oci-mi300x-derived", nil)
	kubelet := kubelettest.Start(t, n.dir)
	p := execute(t, "tandem-gpu", nil,
		n.tandem("--vendor=nvidia", "--driver-root-ctr-path="+t.TempDir(), "--nvidia-recheck=50ms",
			"--health-probe-bind-address=127.0.0.1:0")...)
	const advice = "the GPUs of this node are AMD's: set gpu.vendor=amd or auto"
	waits(t, p, kubelet, "gpu.vendor (--vendor) is nvidia", advice)
	if !strings.Contains(p.Log(), advice) {
		t.Errorf("the log lacks the reason:\n%s", p.Log())
	}
}

// TestDriverComesLater: GPUs are offered once their driver has all of them. A module during its load has
// bound only some.
func TestDriverComesLater(t *testing.T) {
	t.Attr("parity", "amd/no-driver")
	for name, c := range map[string]struct {
		machine, module, vendor string
		args                    []string
		away                    []string // until the driver is loaded
	}{
		"any":  {"nv-h100-oci", "nvidia", "NVIDIA", nil, nil},
		"half": {"oci-mi300x-derived", "amdgpu", "AMD", nil, nil},
		"AMD, any": {"oci-mi300x-derived", "amdgpu", "AMD", nil,
			[]string{"class/kfd", "bus/pci/drivers/amdgpu", "module/amdgpu"}},
		"AMD, stock flags": {"oci-mi300x-derived", "amdgpu", "AMD",
			[]string{"--vendor=amd", "-pulse=0", "-logtostderr=true"},
			[]string{"class/kfd", "bus/pci/drivers/amdgpu", "module/amdgpu"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := nvidiaNode(t, c.machine, nil)
			state := filepath.Join(n.dir, "sys/module", c.module, "initstate")
			write(t, state, "coming\n")
			back := away(t, filepath.Join(n.dir, "sys"), c.away...)
			kubelet := kubelettest.Start(t, n.dir)
			p := execute(t, "tandem-gpu", nil, n.tandem(append([]string{
				"--nvidia-recheck=50ms", "--health-probe-bind-address=127.0.0.1:0",
			}, c.args...)...)...)
			waits(t, p, kubelet, "8 GPUs of "+c.vendor+"'s on PCI")
			back()
			write(t, state, "live\n")
			await8(t, kubelet)
		})
	}
}

// TestNodeWithoutGPUIsReady: without a GPU on PCI no driver is expected, and no rollout waits.
func TestNodeWithoutGPUIsReady(t *testing.T) {
	n := nvidiaNode(t, "oci-mi300x-derived", nil)
	devices := filepath.Join(n.dir, "sys/bus/pci/devices")
	if err := errors.Join(os.RemoveAll(devices), os.Mkdir(devices, 0o750)); err != nil {
		t.Fatal(err)
	}
	kubelet := kubelettest.Start(t, n.dir)
	waits(t, execute(t, "tandem-gpu", nil, n.tandem("--vendor=nvidia", "--driver-root-ctr-path="+t.TempDir(),
		"--health-probe-bind-address=127.0.0.1:0")...), kubelet)
}
