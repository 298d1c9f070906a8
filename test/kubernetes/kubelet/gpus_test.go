// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/node"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/pair"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/rig"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/test/nvml"
	"github.com/tandem-k8s/tandem/topology"
)

// gpuNode is a machine with NVIDIA GPUs under the kubelet's managers and the built daemons.
type gpuNode struct {
	*node.Node
	gpus map[string]nvml.KernelGPU // by UUID
}

// startGPUs starts the managers and the daemons on the folders that replace /sys and /proc.
func startGPUs(t *testing.T, sys, proc string, options pair.Options) *gpuNode {
	t.Helper()
	dir, err := os.MkdirTemp(scratch, "")
	must(t, err)
	tree, err := topology.Read(os.DirFS(sys))
	must(t, err)
	numa, err := node.ReadNUMA(os.DirFS(sys), tree.NUMANodes())
	must(t, err)
	n := &gpuNode{}
	n.Node, err = node.Start(filepath.Join(dir, "kubelet"), node.Options{NUMA: numa})
	must(t, err)
	t.Cleanup(func() { must(t, n.Stop()) })
	options.Bin, options.Sysfs, options.Kubelet = daemons(t), sys, filepath.Join(dir, "kubelet")
	options.Run, options.DevInfo = filepath.Join(dir, "run"), filepath.Join(dir, "devinfo")
	options.Config, options.Coordinated = filepath.Join(dir, "config.json"), true
	const pool = `{"resourceList": [{"resourceName": "vf", "selectors": {"isRdma": true}}]}`
	must(t, os.WriteFile(options.Config, []byte(pool), 0o600))
	options.GPUFlags = append(options.GPUFlags, "--vendor=nvidia", "--proc-root="+proc)
	p, err := pair.Start(options)
	must(t, err)
	t.Cleanup(func() { must(t, p.Stop()) })
	// not before NVML runs: the driver lacks the UUIDs of GPUs that were never used
	_, err = p.Log.Wait(deadline(t), 0, func(lines []pair.Line) bool {
		return slices.ContainsFunc(lines, func(l pair.Line) bool {
			return l.Message == "registered" && l.Resource == rig.NVIDIA
		})
	})
	must(t, err)
	n.gpus, err = nvml.KernelGPUs(os.DirFS(sys), os.DirFS(proc))
	must(t, err)
	must(t, n.WaitAllocatable(deadline(t), rig.NVIDIA, len(n.gpus)))
	return n
}

// admit admits a pod with GPUs and returns the kernel's data of the GPUs that its container sees.
func (n *gpuNode) admit(t *testing.T, count int) (seen []nvml.KernelGPU, remove func()) {
	t.Helper()
	pod := node.Pod(fmt.Sprint("gpus-", count), nil, []v1.Container{
		node.Container("main", map[string]int{rig.NVIDIA: count}),
	})
	must(t, n.Admit(pod))
	response, err := n.Response(deadline(t), pod, "main")
	must(t, err)
	uuids := strings.Split(response.Env["NVIDIA_VISIBLE_DEVICES"], ",")
	for _, uuid := range uuids {
		gpu, known := n.gpus[uuid]
		if !known {
			t.Errorf("the container sees %q, which is none of the kernel's GPUs", uuid)
		}
		seen = append(seen, gpu)
	}
	if len(uuids) != count {
		t.Errorf("the container sees %v, want %d GPUs", uuids, count)
	}
	return seen, func() { must(t, n.Remove(pod)) }
}

// check admits pods of each number of GPUs, one after another, then a pod for each GPU.
func (n *gpuNode) check(t *testing.T) {
	t.Helper()
	onNode := map[string]int{}
	for _, gpu := range n.gpus {
		onNode[gpu.NUMA]++
	}
	for count := 1; count <= len(n.gpus); count++ {
		seen, remove := n.admit(t, count)
		nodes := map[string]bool{}
		for _, gpu := range seen {
			nodes[gpu.NUMA] = true
		}
		if count <= slices.Max(slices.Collect(maps.Values(onNode))) && len(nodes) != 1 {
			t.Errorf("%d GPUs are on several NUMA nodes, and one node has enough: %v", count, seen)
		}
		t.Logf("%d GPUs: %v", count, seen)
		remove()
	}
	owned := map[topology.Address]bool{}
	for range n.gpus {
		seen, _ := n.admit(t, 1)
		if owned[seen[0].Address] {
			t.Errorf("two pods see %s", seen[0].Address)
		}
		owned[seen[0].Address] = true
	}
	var rejection *node.Rejection
	pod := node.Pod("one-too-many", nil, []v1.Container{node.Container("main", map[string]int{rig.NVIDIA: 1})})
	if err := n.Admit(pod); !errors.As(err, &rejection) {
		t.Errorf("a pod for which no GPU is left: %v, want a rejection", err)
	}
}

// TestGPUsOfThisMachine admits pods on the GPUs of the machine that runs the test, with NVIDIA's library, and
// compares what their containers see with the kernel's data.
func TestGPUsOfThisMachine(t *testing.T) {
	if os.Getenv("GPU_CHECK") == "" {
		t.Skip("for machines with NVIDIA GPUs: make gpu-check")
	}
	startGPUs(t, "/sys", "/proc", pair.Options{Dev: "/dev"}).check(t)
}

// TestGPUsOfARecordedMachine runs the same comparison with the stand-in for NVIDIA's library.
func TestGPUsOfARecordedMachine(t *testing.T) {
	for _, name := range []string{"nv-h100-oci", "nv-h200-vm-flat"} {
		t.Run(name, func(t *testing.T) {
			recorded, err := machines.Load(name, 0)
			must(t, err)
			dir := t.TempDir()
			sys, dev, proc := filepath.Join(dir, "sys"), filepath.Join(dir, "dev"), filepath.Join(dir, "proc")
			must(t, os.CopyFS(sys, recorded.FS()))
			must(t, os.Mkdir(dev, 0o755))
			shown, err := nvml.Record(os.DirFS(sys))
			must(t, err)
			must(t, shown.WriteInformation(proc))
			driver := nvml.Start(t, shown)
			startGPUs(t, sys, proc, pair.Options{
				Dev: dev, GPUFlags: []string{"--driver-root-ctr-path=" + driver.Root},
			}).check(t)
		})
	}
}
