// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	management "github.com/NVIDIA/go-nvml/pkg/nvml"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/test/kubelettest"
	"github.com/tandem-k8s/tandem/test/nvml"
	"github.com/tandem-k8s/tandem/topology"
)

// checked is a machine with NVIDIA GPUs, as folders, and the kernel's data of its GPUs by UUID.
type checked struct {
	kubeletDir, sysfs, proc string
	library                 string   // NVML
	args                    []string // of tandem-gpu
	gpus                    map[string]nvml.KernelGPU
}

func (c *checked) read(t *testing.T) {
	t.Helper()
	var err error
	if c.gpus, err = nvml.KernelGPUs(os.DirFS(c.sysfs), os.DirFS(c.proc)); err != nil {
		t.Fatal(err)
	}
}

// start runs tandem-gpu until the end of the test, and returns its plugin and the first list of devices. A
// GPU without health events is unhealthy in the list.
func (c *checked) start(t *testing.T, args ...string) (*kubelettest.Plugin, []*v1beta1.Device) {
	t.Helper()
	kubelet := kubelettest.Start(t, c.kubeletDir)
	execute(t, "tandem-gpu", nil,
		slices.Concat(c.args, []string{"--kubelet-dir=" + c.kubeletDir, "--vendor=nvidia"}, args)...)
	plugin := kubelettest.Await(t, kubelet.Plugins)
	return plugin, kubelettest.Await(t, plugin.Lists)
}

// devices compares each device with the kernel's data, allocates it, and returns the containers' device
// nodes.
func (c *checked) devices(t *testing.T) (nodes []string) {
	t.Helper()
	plugin, devices := c.start(t, "--pass-device-specs")
	c.read(t) // not before NVML runs: the driver lacks the UUIDs of GPUs that were never used
	if len(devices) != len(c.gpus) || len(c.gpus) == 0 {
		t.Errorf("%s has %d devices, the kernel %d GPUs", plugin.Request.GetResourceName(), len(devices),
			len(c.gpus))
	}
	for _, d := range devices {
		gpu, known := c.gpus[d.GetID()]
		numa := "-1"
		for _, n := range d.GetTopology().GetNodes() {
			numa = fmt.Sprint(n.GetID())
		}
		if !known || d.GetHealth() != v1beta1.Healthy || numa != gpu.NUMA {
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
		if node := "/dev/nvidia" + gpu.Minor; len(own) == 0 || own[len(own)-1] != node {
			t.Errorf("a container with %s gets %v, and not %s at the end", d.GetID(), own, node)
		}
		t.Logf("%s: /dev/nvidia%s, NUMA node %s", gpu.Address, gpu.Minor, numa)
		nodes = append(nodes, own...)
	}
	return nodes
}

// specification is the part of a CDI specification with device nodes.
type specification struct {
	Devices []struct {
		Name           string `json:"name"`
		ContainerEdits struct {
			DeviceNodes []struct {
				Path     string `json:"path"`
				HostPath string `json:"hostPath"`
			} `json:"deviceNodes"`
		} `json:"containerEdits"`
	} `json:"devices"`
}

// nodes returns the paths of device nodes in a container, by CDI device.
func (s specification) nodes() map[string][]string {
	nodes := map[string][]string{}
	for _, d := range s.Devices {
		for _, node := range d.ContainerEdits.DeviceNodes {
			nodes[d.Name] = append(nodes[d.Name], node.Path)
		}
	}
	return nodes
}

// cdi compares the CDI specification with the kernel's data: the CDI device of each answer exists, and adds
// the GPU's device node.
func (c *checked) cdi(t *testing.T) {
	t.Helper()
	root := filepath.Join(c.kubeletDir, "checked-cdi")
	plugin, devices := c.start(t, "--device-list-strategy=cdi-cri", "--cdi-root="+root)
	c.read(t)
	content, err := os.ReadFile(filepath.Join(root, "k8s.device-plugin.nvidia.com-gpu.json"))
	if err != nil {
		t.Fatal(err)
	}
	var spec specification
	if err := json.Unmarshal(content, &spec); err != nil {
		t.Fatal(err)
	}
	nodes := spec.nodes()
	for _, d := range devices {
		answer, err := plugin.Allocate(t.Context(), d.GetID())
		if err != nil {
			t.Fatal(err)
		}
		want := "k8s.device-plugin.nvidia.com/gpu=" + d.GetID()
		if got := answer.GetCdiDevices(); len(got) != 1 || got[0].GetName() != want {
			t.Errorf("a container with %s has the CDI devices %v, want %s", d.GetID(), got, want)
		}
		if node := "/dev/nvidia" + c.gpus[d.GetID()].Minor; !slices.Contains(nodes[d.GetID()], node) {
			t.Errorf("the specification adds %v for %s, without %s", nodes[d.GetID()], d.GetID(), node)
		}
	}
}

// ancestors are the levels of package topology by those of NVML.
var ancestors = map[management.GpuTopologyLevel]topology.Level{
	management.TOPOLOGY_SINGLE: topology.PIX, management.TOPOLOGY_MULTIPLE: topology.PXB,
	management.TOPOLOGY_HOSTBRIDGE: topology.PHB, management.TOPOLOGY_NODE: topology.NODE,
	management.TOPOLOGY_SYSTEM: topology.SYS,
}

// distances returns the pairs of GPUs whose distance in sysfs is not NVML's.
func (c *checked) distances(t *testing.T) (different []string) {
	t.Helper()
	tree, err := topology.Read(os.DirFS(c.sysfs))
	if err != nil {
		t.Fatal(err)
	}
	api := management.New(management.WithLibraryPath(c.library))
	must := func(ret management.Return) {
		t.Helper()
		if ret != management.SUCCESS {
			t.Fatalf("NVML: code %d", ret)
		}
	}
	must(api.Init())
	defer func() { must(api.Shutdown()) }()
	c.read(t)
	handles := map[string]management.Device{}
	for uuid := range c.gpus {
		handle, ret := api.DeviceGetHandleByUUID(uuid)
		must(ret)
		handles[uuid] = handle
	}
	for a, first := range handles {
		for b, second := range handles {
			if a >= b {
				continue
			}
			level, ret := first.GetTopologyCommonAncestor(second)
			must(ret)
			want, known := ancestors[level]
			got := tree.Distance(c.gpus[a].Address, c.gpus[b].Address).Level
			if !known || got != want {
				different = append(different, fmt.Sprintf("%s and %s: %s, NVML has level %d",
					c.gpus[a].Address, c.gpus[b].Address, got, level))
			}
		}
	}
	return different
}

// TestThisMachine compares discovery, Allocate, CDI and distances with NVML, sysfs and /proc of the machine
// that runs the test.
func TestThisMachine(t *testing.T) {
	if os.Getenv("GPU_CHECK") == "" {
		t.Skip("for machines with NVIDIA GPUs: make gpu-check")
	}
	machine := func(t *testing.T) *checked {
		dir := kubelettest.Dir(t)
		return &checked{
			kubeletDir: dir, sysfs: "/sys", proc: "/proc", library: "libnvidia-ml.so.1",
			args: []string{"--run-dir=" + filepath.Join(dir, "run")},
		}
	}
	t.Run("devices", func(t *testing.T) {
		for _, node := range machine(t).devices(t) {
			if info, err := os.Stat(node); err != nil || info.Mode()&os.ModeCharDevice == 0 {
				t.Errorf("a container gets %s, which is no character device: %v", node, err)
			}
		}
	})
	t.Run("CDI", func(t *testing.T) { machine(t).cdi(t) })
	t.Run("distances", func(t *testing.T) {
		for _, d := range machine(t).distances(t) {
			t.Error(d)
		}
	})
}

// TestCheck runs the same comparison on a recorded machine, as a test of the comparison.
func TestCheck(t *testing.T) {
	for _, name := range []string{"nv-h100-oci", "nv-h200-vm-flat"} {
		t.Run(name, func(t *testing.T) {
			n := nvidiaNode(t, name, nil)
			c := &checked{
				kubeletDir: n.dir, sysfs: filepath.Join(n.dir, "sys"), proc: filepath.Join(n.dir, "proc"),
				library: filepath.Join(n.Root, "usr/lib64/libnvidia-ml.so.1"), args: n.tandem(),
			}
			if err := n.Machine.WriteInformation(c.proc); err != nil {
				t.Fatal(err)
			}
			t.Run("devices", func(t *testing.T) { c.devices(t) })
			t.Run("CDI", func(t *testing.T) {
				installCDI(t, n)
				c.cdi(t)
			})
			if different := c.distances(t); len(different) > 0 {
				t.Errorf("NVML and sysfs differ: %v", different)
			}
			n.Machine.GPUs[1].Near[0] = int(management.TOPOLOGY_MULTIPLE)
			n.Update(t)
			if different := c.distances(t); len(different) != 1 {
				t.Errorf("one distance of NVML is another one, found %v", different)
			}
		})
	}
}
