// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package nvidia

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/test/nvml"
)

// sick are the IDs of the devices that are there and unhealthy.
func sick(inventory gpu.Inventory) []string {
	var ids []string
	for _, devices := range inventory.Resources {
		for _, d := range devices {
			if !d.Healthy {
				ids = append(ids, d.ID)
			}
		}
	}
	slices.Sort(ids)
	return ids
}

func slicesOf(g nvml.GPU) []string {
	var uuids []string
	for _, s := range g.Slices {
		uuids = append(uuids, s.UUID)
	}
	slices.Sort(uuids)
	return uuids
}

// With --mig-strategy=single a GPU that is divided anew is judged for itself, as is what becomes of the
// others meanwhile; once all GPUs are alike again, all are healthy.
func TestOneGPUIsDividedAnew(t *testing.T) {
	n := record(t, "nv-h100-oci", sevenths)
	backend, _ := n.discover(t, "--mig-strategy=single")
	all := n.Machine.GPUs
	step := func(name, want string, unhealthy []string, note string) {
		t.Helper()
		n.Update(t)
		inventory := later(t, backend)
		if got := summary(inventory); got != want || inventory.Partial ||
			!slices.Equal(sick(inventory), unhealthy) {
			t.Errorf("%s: %s, unhealthy %v, want %s, %v; notes %q", name, got, sick(inventory), want, unhealthy,
				inventory.Notes)
		}
		if told := strings.Join(inventory.Notes, "\n"); !strings.Contains(told, note) || note == "" && told != "" {
			t.Errorf("%s: notes %q, want %q", name, told, note)
		}
	}
	all[3].Slices = nil
	step("its MIG devices are destroyed", "gpu 49", nil,
		"GPU 3 (0000:5b:00.0): MIG is on and there is no MIG device")
	backend.health.markBroken(all[0].UUID, "Xid 79")
	step("another has an Xid meanwhile", "gpu 49!", slicesOf(all[0]),
		"MIG device 0 of GPU 0 (0000:0f:00.0): unhealthy: Xid 79")
	delete(backend.health.broken, all[0].UUID)
	all[3].Split(2, 2, 40320)
	step("it is halved", "gpu 51!", slicesOf(all[3]), "unhealthy: it is 3g.40gb")
	all[3].Slices, all[3].MIG = nil, 0
	step("its MIG is off", "gpu 50!", []string{all[3].UUID}, "GPU 3 (0000:5b:00.0): unhealthy: MIG is off")
	for i := range all {
		all[i].Slices, all[i].MIG = nil, 0
	}
	step("that of all is off", "gpu 8", nil, "")
}

// What is missing of a GPU that answers is gone, whatever another GPU does.
func TestMissingBesideALostGPU(t *testing.T) {
	n := record(t, "nv-h100-oci", sevenths)
	backend, _ := n.discover(t, "--mig-strategy=mixed")
	n.Machine.GPUs[1].State = nvml.GPUIsLost
	n.Update(t)
	inventory := later(t, backend)
	if !inventory.Partial || len(inventory.Read) != 7 ||
		slices.Contains(inventory.Read, n.Machine.GPUs[1].Address) {
		t.Errorf("partial %v, read %v", inventory.Partial, inventory.Read)
	}
}

// What an Xid said of a MIG device goes with the device, and not with the GPU's silence.
func TestMarkGoesWithItsDevice(t *testing.T) {
	n := record(t, "nv-h100-oci", sevenths)
	backend, _ := n.discover(t, "--mig-strategy=mixed")
	backend.health.markBroken(n.Machine.GPUs[2].Slices[0].UUID, "Xid 13")
	backend.health.markBroken(n.Machine.GPUs[2].UUID, "Xid 79")
	n.Machine.GPUs[2].State = nvml.GPUIsLost
	n.Update(t)
	if later(t, backend); len(backend.health.broken) != 2 {
		t.Errorf("the GPU does not answer: %v", backend.health.broken)
	}
	n.Machine.GPUs[2].State, n.Machine.GPUs[2].Slices = 0, nil
	n.Update(t)
	later(t, backend)
	if broken := backend.health.broken; len(broken) != 1 || broken[n.Machine.GPUs[2].UUID].why != "Xid 79" {
		t.Errorf("the MIG device is destroyed: %v", backend.health.broken)
	}
}

// TestDeviceNodes: a GPU whose node an answer would name, and the machine lacks, is unhealthy, with the
// module in the reason; a node that comes or goes is a reason for a discovery. Where the container's runtime
// finds the nodes nobody looks for them.
func TestDeviceNodes(t *testing.T) {
	for _, c := range []struct {
		name      string
		args      []string
		unhealthy int
	}{
		{"the answer names nodes", []string{"--pass-device-specs"}, 1},
		{"the runtime finds them", nil, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := record(t, "nv-h100-oci", nil)
			node := filepath.Join(n.devRoot, "nvidia2")
			if err := os.Remove(node); err != nil {
				t.Fatal(err)
			}
			backend, inventory := n.discover(t, c.args...)
			unhealthy := 0
			for _, d := range inventory.Resources[wholeGPUs] {
				if !d.Healthy && strings.Contains(d.Reason, "/dev/nvidia2: load the kernel module nvidia") {
					unhealthy++
				}
			}
			if unhealthy != c.unhealthy || !backend.areIntact() {
				t.Errorf("%d unhealthy, want %d; intact %t", unhealthy, c.unhealthy, backend.areIntact())
			}
			if err := os.WriteFile(node, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if backend.areIntact() == (c.unhealthy > 0) {
				t.Error("the node that has come is no reason for a discovery, or nobody needs it")
			}
		})
	}
}
