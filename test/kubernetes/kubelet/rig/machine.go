// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"

	"github.com/tandem-k8s/tandem/topology"
)

// The requested resources. The names of GPUs are the vendors', the name of VFs comes from sriovConfig.
const (
	AMD            = "amd.com/gpu"
	NVIDIA         = "nvidia.com/gpu"
	VF             = resourcePrefix + "/" + vfName
	resourcePrefix = "tandem.dev"
	vfName         = "rdma_vf"
)

// Device is a device of the kubelet with its place.
type Device struct {
	ID      string
	Address topology.Address // of a partition, the card's address
	Node    string           // of a GPU: its device node, "renderD128" or "nvidia0"
	Name    string           // of a GPU, for people: its address or, of a partition, the device ID
}

// Machine has the data of a machine for judging placements, read independently of the daemons' code.
type Machine struct {
	Tree *topology.Tree
	GPU  string            // the resource name of its GPUs, AMD or NVIDIA
	gpus map[string]Device // by identity in containers: the render node for AMD, the UUID for NVIDIA
	vfs  []*topology.Device

	address map[string]topology.Address // of every GPU and VF, by device ID
}

func readMachine(sys fs.FS, resource string) (*Machine, error) {
	tree, err := topology.Read(sys)
	if err != nil {
		return nil, err
	}
	read := readAMD
	if resource == NVIDIA {
		read = readNVIDIA
	}
	gpus, err := read(sys)
	if err != nil {
		return nil, fmt.Errorf("read GPUs: %w", err)
	}
	m := &Machine{Tree: tree, GPU: resource, gpus: gpus, address: map[string]topology.Address{}}
	for _, gpu := range gpus {
		m.address[gpu.ID] = gpu.Address
	}
	for device := range tree.Devices() {
		if device.IsVF() {
			m.vfs = append(m.vfs, device)
			m.address[device.Address.String()] = device.Address
		}
	}
	return m, nil
}

// GPUs returns the number of the machine's GPUs, or of their partitions.
func (m *Machine) GPUs() int { return len(m.gpus) }

// VFs returns the number of the machine's VFs.
func (m *Machine) VFs() int { return len(m.vfs) }

// Level returns the distance of a GPU and a VF.
func (m *Machine) Level(gpu, vf topology.Address) topology.Level {
	return m.Tree.Distance(gpu, vf).Level
}

// sriovConfig returns a configuration with all VFs of the machine, including the decoys, as one resource,
// with or without (nil) the key excludeTopology.
func (m *Machine) sriovConfig(excludeTopology *bool) []byte {
	type selectors struct {
		Vendors []string `json:"vendors"`
		Devices []string `json:"devices"`
		IsRdma  bool     `json:"isRdma"`
	}
	type resource struct {
		Name            string    `json:"resourceName"`
		ExcludeTopology *bool     `json:"excludeTopology,omitempty"`
		Selectors       selectors `json:"selectors"`
		Tandem          tandem    `json:"tandem"`
	}
	vfs := resource{
		Name: vfName, ExcludeTopology: excludeTopology, Selectors: selectors{IsRdma: true}, Tandem: told,
	}
	for _, vf := range m.vfs {
		vfs.Selectors.Vendors = append(vfs.Selectors.Vendors, fmt.Sprintf("%04x", vf.Vendor))
		vfs.Selectors.Devices = append(vfs.Selectors.Devices, fmt.Sprintf("%04x", vf.Product))
	}
	for _, list := range []*[]string{&vfs.Selectors.Vendors, &vfs.Selectors.Devices} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	text, err := json.MarshalIndent(map[string]any{"resourceList": []resource{vfs}}, "", "  ")
	if err != nil {
		panic(err) // strings and booleans can be encoded
	}
	return text
}

// addressesOf returns an address per device, so that partitions of a card repeat its address.
func (m *Machine) addressesOf(ids []string) []topology.Address {
	var list []topology.Address
	for _, id := range ids {
		list = append(list, m.address[id])
	}
	return list
}

func addresses(devices []Device) []topology.Address {
	var list []topology.Address
	for _, d := range devices {
		list = append(list, d.Address)
	}
	return list
}
