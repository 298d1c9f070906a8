// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/plugins/dra/claims"
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/test/apiserver"
	"github.com/tandem-k8s/tandem/test/simulation/hardware"
)

// published returns the node's slices of the driver, by name.
func (n *Node) published() []*resourceapi.ResourceSlice {
	return slices.DeleteFunc(apiserver.List[*resourceapi.ResourceSlice](n.server),
		func(slice *resourceapi.ResourceSlice) bool {
			return slice.Spec.Driver != pool.Driver || slice.Spec.NodeName == nil || *slice.Spec.NodeName != nodeName
		})
}

// wipe deletes the node's slices, as the kubelet does.
func (n *Node) wipe() {
	for _, slice := range n.published() {
		apiserver.Remove[*resourceapi.ResourceSlice](n.server, "", slice.Name)
	}
}

// checkSlices: the published slices are those of the moment, and all GPUs that the node has and no pod
// outside holds can be allocated.
func (s *Simulation) checkSlices() {
	if s.checkBuilt(); s.broken == "" {
		s.checkGPUs(s.published())
	}
}

// checkBuilt: the published slices are those of the machine, the feature gates, the prepared claims and the
// holders of the moment.
func (s *Simulation) checkBuilt() {
	machine, err := s.machine()
	if err != nil {
		s.wrong(wrongSlices, "%v", err)
		return
	}
	known, err := s.preparer().Prepared(machine)
	if err != nil {
		s.wrong(wrongSlices, "%v", err)
		return
	}
	bound, inUse := claims.Bound(known)
	now := s.server.Features()
	want := pool.Build(machine, pool.Options{
		Counters: now.Counters, Taints: now.Taints, VFsPerPF: vfsPerPF, Bound: bound, InUse: inUse,
	}).Slices
	got := s.published()
	if len(got) != max(1, len(want)) {
		s.wrong(wrongSlices, "%d slices, want %d", len(got), len(want))
		return
	}
	for i, slice := range want {
		if difference := differ(slice, got[i].Spec); difference != "" {
			s.wrong(wrongSlices, "%s: %s", got[i].Name, difference)
		}
	}
}

// machine returns the devices of the node with their holders, as found now.
func (s *Simulation) machine() (pool.Machine, error) {
	gpus, err := gpu.Discover(hardware.Backend{Machine: s.hardware}, 0, slog.New(slog.DiscardHandler))
	if err != nil {
		return pool.Machine{}, err
	}
	disk := system.Disk{Open: func(string) (system.Folder, error) { return nil, errRefused }}
	log := slog.New(slog.DiscardHandler)
	vfs, err := s.hardware.VFs(s.kubeletDir(), s.runDir(), s.path("pools.json"), disk, nil, log)
	if err != nil {
		return pool.Machine{}, err
	}
	found, links, _, _ := gpus.All()
	pools, _ := vfs.All()
	machine := pool.NewMachine(pool.MachineSources{
		Sys: s.hardware, Tree: s.hardware.Present(), GPUs: found, Links: links, Pools: pools,
	})
	holders := s.old.holders()
	for i := range machine.GPUs {
		machine.GPUs[i].Held = holders[machine.GPUs[i].ID]
	}
	for i := range machine.VFs {
		machine.VFs[i].Held = holders[machine.VFs[i].ID]
	}
	return machine, nil
}

// differ names a difference between a slice and its published form; "" for none.
func differ(want pool.Slice, got resourceapi.ResourceSliceSpec) string {
	if text(want.SharedCounters) != text(got.SharedCounters) {
		return fmt.Sprintf("counters %s, want %s", text(got.SharedCounters), text(want.SharedCounters))
	}
	if has, wants := deviceNames(got.Devices), deviceNames(want.Devices); !slices.Equal(has, wants) {
		return fmt.Sprintf("devices %v, want %v", has, wants)
	}
	for i, device := range want.Devices {
		published := *got.Devices[i].DeepCopy()
		for j := range published.Taints {
			published.Taints[j].TimeAdded = nil
		}
		for name, value := range map[string][2]string{
			"attributes": {text(published.Attributes), text(device.Attributes)},
			"taints":     {text(published.Taints), text(device.Taints)},
			"counters":   {text(published.ConsumesCounters), text(device.ConsumesCounters)},
			"device":     {text(published), text(device)},
		} {
			if value[0] != value[1] && name != "device" {
				return fmt.Sprintf("%s with %s %s, want %s", device.Name, name, value[0], value[1])
			}
		}
	}
	return ""
}

// deviceNames returns the names of devices.
func deviceNames(devices []resourceapi.Device) (names []string) {
	for _, device := range devices {
		names = append(names, device.Name)
	}
	return names
}

// text returns a value for a comparison.
func text(value any) string {
	content, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(content)
}

// checkShared: devices with a common GPU have counters, which the scheduler needs.
func (s *Simulation) checkShared() {
	first := map[string]resourceapi.Device{}
	for _, slice := range s.published() {
		for _, device := range slice.Spec.Devices {
			id := attribute(&device, pool.AttributeGPU)
			other, shared := first[id]
			if shared && id != "" && (len(device.ConsumesCounters) == 0 || len(other.ConsumesCounters) == 0) {
				s.wrong(wrongSlices, "%s and %s have GPU %s, and no counter", device.Name, other.Name, id)
			}
			first[id] = device
		}
	}
}

// checkGPUs: the GPUs of devices without taints are those of the machine that no pod has from a device
// plugin. Without counters a GPU and its VF are one device, which nobody gets while a pod has one of both;
// without taints too, the device is not published.
func (s *Simulation) checkGPUs(published []*resourceapi.ResourceSlice) {
	want, got := map[string]bool{}, map[string]bool{}
	holders := s.old.holders()
	found, _ := s.hardware.GPUs()
	for _, d := range found {
		if id := d.Address.String(); holders[id] == "" {
			want[id] = true
		}
	}
	for _, slice := range published {
		for _, device := range slice.Spec.Devices {
			id := attribute(&device, pool.AttributeGPU)
			switch {
			case id == "":
			case len(device.Taints) == 0:
				got[id] = true
			case pool.Type(attribute(&device, pool.AttributeType)) == pool.TypeGPUVF &&
				holders[attribute(&device, pool.AttributeVF)] != "":
				delete(want, id) // one device with a VF that a pod has
			}
		}
	}
	if now := s.server.Features(); !now.Counters && !now.Taints {
		vfs := len(holders) - (len(found) - len(want)) // that pods have: each hides at most one GPU
		for _, id := range slices.Sorted(maps.Keys(want)) {
			if !got[id] && vfs > 0 {
				delete(want, id)
				vfs--
			}
		}
	}
	if !maps.Equal(want, got) {
		s.wrong(wrongSlices, "GPUs %v can be allocated, want %v", slices.Sorted(maps.Keys(got)),
			slices.Sorted(maps.Keys(want)))
	}
}
