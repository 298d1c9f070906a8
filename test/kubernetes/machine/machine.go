// SPDX-License-Identifier: Apache-2.0

// Package machine lays a recorded machine out in a folder, for the daemons and for the tests that judge what
// containers get. It reads GPUs and VFs independently of the daemons' code.
package machine

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
)

// The requested resources. The names of GPUs are the vendors', the name of VFs comes from Config.
const (
	AMD    = "amd.com/gpu"
	NVIDIA = "nvidia.com/gpu"
	VF     = Prefix + "/" + vfName
	Prefix = "tandem.dev"
	vfName = "rdma_vf"
)

// GPUsOf returns the resource name of a machine's GPUs, AMD or NVIDIA, according to the machine's name.
func GPUsOf(name string) string {
	if strings.HasPrefix(name, "nv-") {
		return NVIDIA
	}
	return AMD
}

// Device is a device of the kubelet with its place.
type Device struct {
	ID      string
	Address topology.Address // of a partition, the card's address
	Node    string           // of a GPU: its device node, "renderD128" or "nvidia0"
	Name    string           // of a GPU, for people: its address or, of a partition, the device ID
}

// Machine is a recorded machine in a folder.
type Machine struct {
	Dir     string // short, for the sockets
	Tree    *topology.Tree
	GPU     string                      // the resource name of its GPUs, AMD or NVIDIA
	Seen    map[string]Device           // GPUs by identity in containers: AMD's render node, NVIDIA's UUID
	Address map[string]topology.Address // of every GPU and VF, by device ID
	vfs     []*topology.Device
}

// LayOut writes a recorded machine into a folder, with the given number of VFs on each PF that was recorded
// without VFs. Machines with NVIDIA GPUs need the library, a stand-in for NVIDIA's.
func LayOut(dir, name string, vfsPerPF int, library string) (*Machine, error) {
	recorded, err := machines.Load(name, vfsPerPF)
	if err != nil {
		return nil, err
	}
	m := &Machine{Dir: dir, GPU: GPUsOf(name), Address: map[string]topology.Address{}}
	if err := os.CopyFS(m.Path("sys"), recorded.FS()); err != nil {
		return nil, fmt.Errorf("lay out %s: %w", name, err)
	}
	if err := os.Mkdir(m.Path("dev"), 0o755); err != nil {
		return nil, err
	}
	sys, read := os.DirFS(m.Path("sys")), readAMD
	if m.GPU == NVIDIA {
		read = func(sys fs.FS) (map[string]Device, error) { return m.installNVML(sys, library) }
	}
	if m.Tree, err = topology.Read(sys); err == nil {
		m.Seen, err = read(sys)
	}
	if err != nil {
		return nil, fmt.Errorf("lay out %s: %w", name, err)
	}
	for _, gpu := range m.Seen {
		m.Address[gpu.ID] = gpu.Address
	}
	for device := range m.Tree.Devices() {
		if device.IsVF() {
			m.vfs = append(m.vfs, device)
			m.Address[device.Address.String()] = device.Address
		}
	}
	return m, nil
}

// Path returns a path in the machine's folder.
func (m *Machine) Path(name string) string { return filepath.Join(m.Dir, name) }

// GPUs returns the number of the machine's GPUs, or of their partitions.
func (m *Machine) GPUs() int { return len(m.Seen) }

// VFs returns the number of the machine's VFs.
func (m *Machine) VFs() int { return len(m.vfs) }

// Level returns the distance of a GPU and a VF.
func (m *Machine) Level(gpu, vf topology.Address) topology.Level {
	return m.Tree.Distance(gpu, vf).Level
}

// Config returns a configuration of tandem-rdma with all VFs of the machine, including the decoys, as one
// resource with some keys more.
func (m *Machine) Config(keys map[string]any) []byte {
	vendors, devices := []string{}, []string{}
	for _, vf := range m.vfs {
		vendors = append(vendors, fmt.Sprintf("%04x", vf.Vendor))
		devices = append(devices, fmt.Sprintf("%04x", vf.Product))
	}
	slices.Sort(vendors)
	slices.Sort(devices)
	resource := map[string]any{"resourceName": vfName, "selectors": map[string]any{
		"vendors": slices.Compact(vendors), "devices": slices.Compact(devices), "isRdma": true,
	}}
	maps.Copy(resource, keys)
	text, err := json.MarshalIndent(map[string]any{"resourceList": []any{resource}}, "", "  ")
	if err != nil {
		panic(err) // strings and booleans can be encoded
	}
	return text
}
