// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"slices"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/test/machines"
)

// machine is a recorded machine with this many VFs on each PF.
func machine(t testing.TB, name string, vfs int) pool.Machine {
	t.Helper()
	sys, tree := machines.Read(t, name, vfs)
	read, err := pool.ReadMachine(sys, tree, nil)
	if err != nil {
		t.Fatal(err)
	}
	return read
}

// plain is how drivers publish a machine that know no pairs: each GPU and each VF for itself, with its
// switch.
func plain(m pool.Machine) pool.Pool {
	var devices []resourceapi.Device
	add := func(kind, id, at string) {
		devices = append(devices, resourceapi.Device{
			Name: kind + "-" + nameOf(id),
			Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
				"type": {StringValue: &kind}, "pcieSwitch": {StringValue: &at},
			},
		})
	}
	for _, gpu := range m.GPUs {
		add("gpu", gpu.ID, gpu.Switch)
	}
	for _, vf := range m.VFs {
		add("vf", vf.ID, vf.Switch)
	}
	var p pool.Pool
	for chunk := range slices.Chunk(devices, resourceapi.ResourceSliceMaxDevices) {
		p.Slices = append(p.Slices, pool.Slice{Devices: chunk})
	}
	return p
}

// nameOf is an ID as a device can be named: a DNS label.
func nameOf(id string) string {
	name := []byte(id)
	for i, c := range name {
		if c == ':' || c == '.' || c == '_' {
			name[i] = '-'
		}
	}
	return string(name)
}

// without is a machine without the VFs of one GPU's switch.
func without(m pool.Machine, at string) pool.Machine {
	m.VFs = slices.DeleteFunc(slices.Clone(m.VFs), func(vf pool.VF) bool { return vf.Switch == at })
	return m
}
