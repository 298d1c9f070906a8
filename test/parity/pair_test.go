// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/test/kubelettest"
)

// nearest is the VF on the switch of each GPU, as Oracle's own SR-IOV policy for the shape and the topology
// of its twin have it.
var nearest = map[string]string{
	"0000:11:00.0": "0000:0c:00.1", "0000:2f:00.0": "0000:2a:00.1", "0000:46:00.0": "0000:41:00.1",
	"0000:5d:00.0": "0000:58:00.1", "0000:8b:00.0": "0000:86:00.1", "0000:aa:00.0": "0000:a5:00.1",
	"0000:c2:00.0": "0000:bd:00.1", "0000:da:00.0": "0000:d5:00.1",
}

// paired checks that the VFs are those of the GPUs' switches.
func (n *node) paired(t *testing.T, gpus, vfs []string) {
	t.Helper()
	var want []string
	for _, gpu := range gpus {
		want = append(want, nearest[gpu])
	}
	slices.Sort(want)
	switch {
	case slices.Equal(want, slices.Sorted(slices.Values(vfs))):
	case n.slowest >= patience:
		t.Skipf("this computer is too busy: an answer took %s, and the plugins wait %s for PodResources",
			n.slowest, patience)
	default:
		t.Errorf("GPUs %v with VFs %v, want %v", gpus, vfs, want)
	}
}

func without(list, taken []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(id string) bool { return slices.Contains(taken, id) })
}

// TestPairs: containers of two GPUs and two VFs, the resources in turn in either order.
func TestPairs(t *testing.T) {
	t.Attr("parity", "all/rpc-order")
	t.Attr("parity", "sriov/preferred")
	n := start(t, nil, gpuProgram, vfProgram)
	free := map[string][]string{gpuName: n.ids(gpuName), vfName: n.ids(vfName)}
	if len(free[gpuName]) != 8 || len(free[vfName]) != 8 {
		t.Fatalf("devices %v", free)
	}
	for i, order := range [][]string{
		{gpuName, vfName},
		{vfName, gpuName},
		{gpuName, vfName},
		{vfName, gpuName},
	} {
		got := map[string][]string{}
		for _, resource := range order {
			got[resource] = n.prefer(t, resource, free[resource], nil, 2)
			n.allocate(t, resource, got[resource])
			free[resource] = without(free[resource], got[resource])
		}
		if len(got[gpuName]) != 2 {
			t.Fatalf("container %d got %v", i, got)
		}
		n.admitted(t, fmt.Sprint("pod-", i), "c", got)
		n.paired(t, got[gpuName], got[vfName])
	}
}

// TestUnaskedHalf: the kubelet takes the GPUs without asking, and then asks for the VFs.
func TestUnaskedHalf(t *testing.T) {
	t.Attr("parity", "all/preferred-may-be-skipped")
	n := start(t, nil, gpuProgram, vfProgram)
	gpus := []string{"0000:46:00.0", "0000:c2:00.0"}
	n.allocate(t, gpuName, gpus)
	n.show(t, map[string][]string{gpuName: gpus})
	n.paired(t, gpus, n.prefer(t, vfName, n.ids(vfName), nil, 2))
}

// TestHeld: a container of the same pod goes on with the devices of an init container.
func TestHeld(t *testing.T) {
	t.Attr("parity", "all/init-container-reuse")
	t.Attr("parity", "all/preferred-honours-must-include")
	n := start(t, nil, gpuProgram, vfProgram)
	gpu := n.prefer(t, gpuName, n.ids(gpuName), nil, 1)
	n.allocate(t, gpuName, gpu)
	vf := n.prefer(t, vfName, n.ids(vfName), nil, 1)
	n.allocate(t, vfName, vf)
	n.paired(t, gpu, vf)
	n.admitted(t, "pod", "init", map[string][]string{gpuName: gpu, vfName: vf})
	gpus := n.prefer(t, gpuName, n.ids(gpuName), gpu, 2)
	n.allocate(t, gpuName, gpus)
	n.show(t, map[string][]string{gpuName: gpus})
	if vfs := n.prefer(t, vfName, n.ids(vfName), vf, 2); len(gpus) != 2 {
		t.Errorf("GPUs %v, VFs %v", gpus, vfs)
	} else {
		n.paired(t, gpus, vfs)
	}
}

// TestAnyQuestion: there is an answer to every question, as long as it can be.
func TestAnyQuestion(t *testing.T) {
	t.Attr("parity", "all/preferred-never-errors")
	n := start(t, nil, gpuProgram, vfProgram)
	all := n.ids(gpuName)
	for name, c := range map[string]struct {
		available, held []string
		size, want      int
	}{
		"nothing":           {nil, nil, 0, 0},
		"none of all":       {all, nil, 0, 0},
		"more than all":     {all, nil, 9, 8},
		"of nothing":        {nil, nil, 3, 0},
		"twice the same":    {append(all[:2:2], all[:2]...), nil, 2, 2},
		"unknown":           {[]string{"GPU-1", "", "0000:11:00.0", "0000:zz:00.0"}, nil, 3, 3},
		"more than size":    {all, all[:4], 2, 2},
		"held, unavailable": {all[2:], all[:1], 2, 2},
	} {
		t.Run(name, func(t *testing.T) {
			chosen, err := n.plugins[gpuName].Prefer(t.Context(), c.available, c.held, c.size)
			if err != nil || len(chosen) != c.want && name != "held, unavailable" {
				t.Errorf("%v, %v, want %d devices", chosen, err, c.want)
			}
		})
	}
}

// TestPlanThatCameToNothing: a pod whose GPUs were chosen is refused; nobody else is held up by that.
func TestPlanThatCameToNothing(t *testing.T) {
	t.Attr("parity", "all/hint-expiry")
	n := start(t, nil, gpuProgram, vfProgram)
	for range 3 {
		if got := n.prefer(t, gpuName, n.ids(gpuName), nil, 8); len(got) != 8 {
			t.Errorf("GPUs %v", got)
		}
	}
	vfs := n.prefer(t, vfName, n.ids(vfName), nil, 8)
	n.allocate(t, vfName, vfs)
	gpus := n.prefer(t, gpuName, n.ids(gpuName), nil, 8)
	n.paired(t, gpus, vfs)
}

// TestStoppedPeer: each plugin answers in time while the other, which may be the one that coordinates, is
// stopped.
func TestStoppedPeer(t *testing.T) {
	t.Attr("parity", "all/preferred-deadline")
	n := start(t, nil, gpuProgram, vfProgram)
	for program, resource := range map[string]string{gpuProgram: vfName, vfProgram: gpuName} {
		process := n.running[program].Process
		if err := process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		fastest := time.Hour // what else the computer does stays out of it
		for range 5 {
			began := time.Now()
			if got := n.prefer(t, resource, n.ids(resource), nil, 2); len(got) != 2 {
				t.Errorf("%s: %v", resource, got)
			}
			fastest = min(fastest, time.Since(began))
		}
		if err := process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if t.Logf("%s answers after %s", resource, fastest); fastest > 150*time.Millisecond {
			t.Errorf("%s answers after %s while %s is stopped", resource, fastest, program)
		}
	}
}

// TestAlone: each plugin works without the other, before it comes and after it went.
func TestAlone(t *testing.T) {
	t.Attr("parity", "pair/peer-absent")
	for program, c := range map[string]struct{ resource, near string }{
		gpuProgram: {gpuName, "0000:aa:00.0 0000:8b:00.0"},
		vfProgram:  {vfName, "0000:a5:00.1 0000:86:00.1"},
	} {
		t.Run(program, func(t *testing.T) {
			n := start(t, nil, program)
			few := append(strings.Fields(c.near), n.ids(c.resource)[0]) // two of one NUMA node, and one of the other
			if got := n.prefer(t, c.resource, few, nil, 2); len(got) != 2 {
				t.Errorf("chosen %v", got)
			}
			n.allocate(t, c.resource, n.prefer(t, c.resource, n.ids(c.resource), nil, 8))
		})
	}
	n := start(t, nil, gpuProgram, vfProgram)
	n.kill(t, gpuProgram)
	n.allocate(t, vfName, n.prefer(t, vfName, n.ids(vfName), nil, 4))
	n.run(t, gpuProgram)
	n.kill(t, vfProgram)
	n.allocate(t, gpuName, n.prefer(t, gpuName, n.ids(gpuName), nil, 4))
}

// TestNoSharedSwitch: where no free VF is on the GPU's switch, one of its NUMA node, and of the other before
// none.
func TestNoSharedSwitch(t *testing.T) {
	t.Attr("parity", "pair/no-shared-switch")
	n := start(t, nil, gpuProgram, vfProgram)
	gpu := []string{"0000:11:00.0"}
	n.allocate(t, gpuName, gpu)
	far := []string{"0000:86:00.1", "0000:a5:00.1"}
	if got := n.prefer(t, vfName, append(far, "0000:58:00.1"), nil, 1); !slices.Equal(got,
		[]string{"0000:58:00.1"}) {
		t.Errorf("chosen %v, want the VF of the same NUMA node", got)
	}
	if got := n.prefer(t, vfName, far, nil, 1); len(got) != 1 {
		t.Errorf("chosen %v of %v", got, far)
	}
}

// TestNUMAUnknown: the kubelet is told of no node, and of none that does not exist.
func TestNUMAUnknown(t *testing.T) {
	t.Attr("parity", "all/numa-minus-one")
	n := start(t, func(sys string) {
		files, err := filepath.Glob(filepath.Join(sys, "bus/pci/devices/*/numa_node"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no numa_node files: %v", err)
		}
		for _, file := range files {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte("-1\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}, gpuProgram, vfProgram)
	for resource, devices := range n.lists {
		for _, d := range devices {
			if d.GetTopology() != nil || len(devices) != 8 {
				t.Errorf("%s: %d devices, %v", resource, len(devices), d)
			}
		}
	}
}

// TestIDsAndSockets: device IDs are PCI addresses and the same after a restart, and the coordination socket
// is where the kubelet does not delete it.
func TestIDsAndSockets(t *testing.T) {
	t.Attr("parity", "all/id-stability")
	t.Attr("parity", "all/coordination-socket-location")
	n := start(t, nil, gpuProgram, vfProgram)
	before := map[string][]string{gpuName: n.ids(gpuName), vfName: n.ids(vfName)}
	for gpu, vf := range nearest {
		if !slices.Contains(before[gpuName], gpu) || !slices.Contains(before[vfName], vf) {
			t.Errorf("no %s or no %s in %v", gpu, vf, before)
		}
	}
	for _, entry := range entries(t, kubelettest.Plugins(n.dir)) {
		if entry != "kubelet.sock" && entry != checkpoint && !strings.HasPrefix(entry, "amd.com_gpu") &&
			!strings.HasPrefix(entry, "tandem.dev_rdma_vf") {
			t.Errorf("%s is in the kubelet's folder", entry)
		}
	}
	if list := entries(t, n.path("run")); !slices.Contains(list, "coordination.sock") {
		t.Errorf("run folder %v", list)
	}
	for _, program := range []string{gpuProgram, vfProgram} {
		n.kill(t, program)
		n.run(t, program)
	}
	for resource, ids := range before {
		if got := n.ids(resource); !slices.Equal(got, ids) {
			t.Errorf("%s: %v after the restart, %v before", resource, got, ids)
		}
	}
}

func entries(t *testing.T, dir string) (names []string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range list {
		names = append(names, entry.Name())
	}
	return names
}
