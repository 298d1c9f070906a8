// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/test/kubelettest"
	"github.com/tandem-k8s/tandem/topology"
)

// kernelGPU is the kernel's data of a GPU, independent of NVML.
type kernelGPU struct {
	address topology.Address
	minor   string
	numa    string // from sysfs, "-1" for unknown
}

// kernelGPUs reads /proc/driver/nvidia/gpus/<address>/information, by UUID ("The /proc filesystem interface"
// in the README of NVIDIA's driver), and numa_node in sysfs. It omits GPUs that the driver is configured to
// ignore.
func kernelGPUs(t *testing.T, sysfs, proc string) map[string]kernelGPU {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(proc, "driver/nvidia/gpus/*/information"))
	if err != nil {
		t.Fatal(err)
	}
	gpus := map[string]kernelGPU{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		said := map[string]string{}
		for lines := bufio.NewScanner(bytes.NewReader(content)); lines.Scan(); {
			key, value, _ := strings.Cut(lines.Text(), ":")
			said[key] = strings.TrimSpace(value)
		}
		if said["GPU Excluded"] == "Yes" {
			continue
		}
		address, err := topology.ParseAddress(filepath.Base(filepath.Dir(file)))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		numa, err := os.ReadFile(filepath.Join(sysfs, "bus/pci/devices", address.String(), "numa_node"))
		if err != nil {
			t.Fatal(err)
		}
		gpus[said["GPU UUID"]] = kernelGPU{
			address: address, minor: said["Device Minor"], numa: strings.TrimSpace(string(numa)),
		}
	}
	return gpus
}

// check runs tandem-gpu on a node's GPUs, allocates each GPU to a container, compares the devices with the
// kernel's data, and returns the containers' device nodes.
func check(t *testing.T, kubeletDir, sysfs, proc string, args ...string) (nodes []string) {
	t.Helper()
	kubelet := kubelettest.Start(t, kubeletDir)
	execute(t, "tandem-gpu", nil,
		append(args, "--kubelet-dir="+kubeletDir, "--vendor=nvidia", "--pass-device-specs")...)
	plugin := kubelettest.Await(t, kubelet.Plugins)
	devices := kubelettest.Await(t, plugin.Lists)
	// not before NVML runs: the driver lacks the UUIDs of GPUs that were never used
	gpus := kernelGPUs(t, sysfs, proc)
	if len(devices) != len(gpus) || len(gpus) == 0 {
		t.Errorf("%s has %d devices, the kernel %d GPUs", plugin.Request.GetResourceName(), len(devices), len(gpus))
	}
	for _, d := range devices {
		gpu, known := gpus[d.GetID()]
		numa := "-1"
		for _, n := range d.GetTopology().GetNodes() {
			numa = fmt.Sprint(n.GetID())
		}
		if !known || d.GetHealth() != v1beta1.Healthy || numa != gpu.numa {
			t.Errorf("%s is %s on NUMA node %s, the kernel knows %+v", d.GetID(), d.GetHealth(), numa, gpu)
		}
		answer, err := plugin.Allocate(t.Context(), d.GetID())
		if err != nil {
			t.Fatal(err)
		}
		if visible := answer.GetEnvs()["NVIDIA_VISIBLE_DEVICES"]; visible != d.GetID() {
			t.Errorf("a container with %s sees %q", d.GetID(), visible)
		}
		var own []string
		for _, spec := range answer.GetDevices() {
			own = append(own, spec.GetHostPath())
		}
		if node := "/dev/nvidia" + gpu.minor; len(own) == 0 || own[len(own)-1] != node {
			t.Errorf("a container with %s gets %v, and not %s at the end", d.GetID(), own, node)
		}
		t.Logf("%s: /dev/nvidia%s, NUMA node %s", gpu.address, gpu.minor, numa)
		nodes = append(nodes, own...)
	}
	return nodes
}

// TestThisMachine compares discovery and Allocate with NVML and sysfs of the machine that runs the test.
func TestThisMachine(t *testing.T) {
	if os.Getenv("GPU_CHECK") == "" {
		t.Skip("for machines with NVIDIA GPUs: make gpu-check")
	}
	dir := kubelettest.Dir(t)
	for _, node := range check(t, dir, "/sys", "/proc", "--run-dir="+filepath.Join(dir, "run")) {
		if info, err := os.Stat(node); err != nil || info.Mode()&os.ModeCharDevice == 0 {
			t.Errorf("a container gets %s, which is no character device: %v", node, err)
		}
	}
}

// TestCheck runs the same comparison on a recorded machine, as a test of the comparison.
func TestCheck(t *testing.T) {
	for _, machine := range []string{"nv-h100-oci", "nv-h200-vm-flat"} {
		t.Run(machine, func(t *testing.T) {
			n := nvidiaNode(t, machine, nil)
			proc := filepath.Join(n.dir, "proc")
			for _, g := range n.Machine.GPUs {
				write(t, filepath.Join(proc, "driver/nvidia/gpus", g.Address.String(), "information"), fmt.Sprintf(
					"Model: \t\t %s\nGPU UUID: \t %s\nBus Location: \t %s\nDevice Minor: \t %d\nGPU Excluded:\t No\n",
					g.Name, g.UUID, g.Address, g.Minor))
			}
			check(t, n.dir, filepath.Join(n.dir, "sys"), proc, n.tandem()...)
		})
	}
}
