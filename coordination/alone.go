// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"slices"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// Alone answers GetPreferredAllocation without the coordinator and without waiting: by the PCI tree, this
// plugin's own devices and the last allocation of the other plugin (handout.go). It keeps GPUs together,
// takes VFs of separate PFs next to a GPU, and chooses the best second half for the first half of a
// container.
func (m *Member) Alone(available, mustInclude []string, size int) []string {
	chosen, _ := m.choose(available, mustInclude, size)
	return chosen
}

// choose is Alone with the reason.
func (m *Member) choose(available, mustInclude []string, size int) ([]string, string) {
	asked := placement.Half{Count: size}
	for _, device := range m.placed(available) {
		if slices.Contains(mustInclude, device.ID) {
			asked.Held = append(asked.Held, device)
		} else {
			asked.Free = append(asked.Free, device)
		}
	}
	_, links := m.devices()
	request := placement.Request{Links: links}
	m.kind.AddTo(&request, asked)
	m.kind.Other().AddTo(&request, m.otherHalf(size))
	choice, err := placement.Choose(m.node.machine.newest(), request)
	if err != nil {
		return firstOf(available, mustInclude, size), err.Error()
	}
	return m.own(choice), choice.Reason
}

// otherHalf returns the container's devices of the other kind, and as many more as the requested number: the
// container may take over devices of an init container, or may not be the container of the last allocation.
// Allocated devices of the other plugin are unknown here, so VFs are chosen as if all GPUs of the machine
// were free. GPUs are chosen independently of VFs.
func (m *Member) otherHalf(size int) placement.Half {
	half := placement.Half{Held: m.counterparts()}
	half.Count = len(half.Held)
	if m.kind == device.GPU || half.Count >= size {
		return half
	}
	held := map[topology.Address]bool{}
	for _, d := range half.Held {
		held[d.Address] = true
	}
	for d := range m.node.machine.newest().Devices() {
		if d.Class.IsGPU() && !held[d.Address] {
			half.Free = append(half.Free, placement.Device{ID: d.Address.String(), Address: d.Address})
		}
	}
	half.Count = max(half.Count, min(size, half.Count+len(half.Free)))
	return half
}

// own returns the devices of a choice that are of this member's kind.
func (m *Member) own(choice placement.Choice) []string {
	devices := choice.GPUs
	if m.kind == device.VF {
		devices = choice.VFs
	}
	ids := make([]string, 0, len(devices))
	for _, d := range devices {
		ids = append(ids, d.ID)
	}
	return ids
}

// inPairOrder orders a container's devices by their counterparts of the previous allocation, or by address if
// there are none.
func (m *Member) inPairOrder(ids []string) []string {
	before := m.counterparts()
	_, links := m.devices()
	request := placement.Request{Links: links}
	m.kind.AddTo(&request, placement.Half{Count: len(ids), Held: m.placed(ids)})
	m.kind.Other().AddTo(&request, placement.Half{Count: len(before), Held: before})
	choice, err := placement.Choose(m.node.machine.newest(), request)
	if err != nil {
		return ids
	}
	return m.own(choice)
}

// firstOf is the answer without any information: the mustInclude IDs, then the lowest other IDs.
func firstOf(available, mustInclude []string, size int) []string {
	ids := slices.Clone(mustInclude)
	for _, id := range slices.Sorted(slices.Values(available)) {
		if len(ids) < size && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}
