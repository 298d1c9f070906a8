// SPDX-License-Identifier: Apache-2.0

// Package node is a node with a recorded machine: its files in a folder, and the built DRA driver.
package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/test/nvml"
	"github.com/tandem-k8s/tandem/topology"
)

// Machine is a recorded machine in a folder.
type Machine struct {
	Name string // of the recording
	Dir  string // short, for the sockets
	Tree *topology.Tree
	gpus map[string]topology.Address // by identity in containers: the render node for AMD, the UUID for NVIDIA
}

// LayOut writes a recorded machine into a folder, with the given number of VFs on each PF that was recorded
// without VFs. Machines with NVIDIA GPUs need the library, a stand-in for NVIDIA's.
func LayOut(dir, name string, vfs int, library string) (*Machine, error) {
	recorded, err := machines.Load(name, vfs)
	if err != nil {
		return nil, err
	}
	m := &Machine{Name: name, Dir: dir, gpus: map[string]topology.Address{}}
	if err := os.CopyFS(m.path("sys"), recorded.FS()); err != nil {
		return nil, fmt.Errorf("lay out %s: %w", name, err)
	}
	sys := os.DirFS(m.path("sys"))
	if m.Tree, err = topology.Read(sys); err != nil {
		return nil, fmt.Errorf("lay out %s: %w", name, err)
	}
	install := m.readAMD
	if m.NVIDIA() {
		install = func(sys fs.FS) error { return m.installNVIDIA(sys, library) }
	}
	return m, errors.Join(install(sys), os.Mkdir(m.path("dev"), 0o755), os.Mkdir(m.path("run"), 0o755),
		os.WriteFile(m.path("config.json"), m.config(), 0o644))
}

func (m *Machine) path(name string) string { return filepath.Join(m.Dir, name) }

// NVIDIA reports whether the GPUs are NVIDIA's; otherwise they are AMD's.
func (m *Machine) NVIDIA() bool { return strings.HasPrefix(m.Name, "nv-") }

// Resource returns the resource name of the GPUs in the vendor's device plugin.
func (m *Machine) Resource() string {
	if m.NVIDIA() {
		return "nvidia.com/gpu"
	}
	return "amd.com/gpu"
}

// GPUs returns the number of the machine's GPUs, or of their partitions.
func (m *Machine) GPUs() int { return len(m.gpus) }

// readAMD finds the function behind each render node. A recording with partitions is not read.
func (m *Machine) readAMD(sys fs.FS) error {
	links, err := fs.Glob(sys, "class/drm/renderD*")
	if err != nil {
		return err
	}
	for _, link := range links {
		target, err := fs.ReadLink(sys, link) // ../../devices/…/0000:11:00.0/drm/renderD128
		if err != nil {
			return err
		}
		address, err := topology.ParseAddress(path.Base(path.Dir(path.Dir(target))))
		if err != nil {
			return fmt.Errorf("read %s: %w", link, err)
		}
		m.gpus[path.Base(link)] = address
	}
	return nil
}

// installNVIDIA installs the stand-in for NVIDIA's library at the driver's path.
func (m *Machine) installNVIDIA(sys fs.FS, library string) error {
	shown, err := nvml.Record(sys)
	if err != nil {
		return err
	}
	for _, gpu := range shown.GPUs {
		m.gpus[gpu.UUID] = gpu.Address
	}
	libraries := m.path("driver/usr/lib64")
	return errors.Join(shown.Write(m.path("nvml")), os.MkdirAll(libraries, 0o755),
		os.Symlink(library, filepath.Join(libraries, "libnvidia-ml.so.1")),
		os.WriteFile(filepath.Join(libraries, "libnvidia-ml.so."+shown.Driver), nil, 0o755),
		os.WriteFile(filepath.Join(libraries, "libcuda.so."+shown.Driver), nil, 0o755))
}

// config returns a configuration with all VFs of the machine as one resource.
func (m *Machine) config() []byte {
	vendors, devices := []string{}, []string{}
	for device := range m.Tree.Devices() {
		if device.IsVF() {
			vendors = append(vendors, fmt.Sprintf("%04x", device.Vendor))
			devices = append(devices, fmt.Sprintf("%04x", device.Product))
		}
	}
	slices.Sort(vendors)
	slices.Sort(devices)
	text, err := json.Marshal(map[string]any{"resourceList": []any{map[string]any{
		"resourceName": "rdma_vf",
		"selectors": map[string]any{
			"vendors": slices.Compact(vendors), "devices": slices.Compact(devices), "isRdma": true,
		},
	}}})
	if err != nil {
		panic(err) // strings and booleans can be encoded
	}
	return text
}
