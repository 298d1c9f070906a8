// SPDX-License-Identifier: Apache-2.0

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

	"github.com/tandem-k8s/tandem/topology"
)

// Given has the devices that CDI devices add to a container.
type Given struct {
	GPUs []topology.Address
	VFs  []topology.Address
}

// spec is as much of a CDI spec as these tests read (specification 0.5 and later).
type spec struct {
	Kind    string `json:"kind"`
	Devices []struct {
		Name  string `json:"name"`
		Edits struct {
			Env   []string `json:"env"`
			Nodes []struct {
				Path string `json:"path"`
			} `json:"deviceNodes"`
			Mounts []struct {
				HostPath string `json:"hostPath"`
			} `json:"mounts"`
		} `json:"containerEdits"`
	} `json:"devices"`
}

// gpuSpec is the CDI spec of all NVIDIA GPUs of a node, which always exists.
const gpuSpec = "k8s.device-plugin.nvidia.com-gpu.json"

// ClaimFiles returns the names of the claims' files in the folder of CDI specs.
func (m *Machine) ClaimFiles() ([]string, error) {
	names, err := m.files()
	return slices.DeleteFunc(names, func(name string) bool { return name == gpuSpec }), err
}

func (m *Machine) files() ([]string, error) {
	entries, err := os.ReadDir(m.CDI())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names, err
}

// Give resolves CDI devices like a container runtime: every device must be in a spec, and every mounted file
// must exist.
func (m *Machine) Give(devices []string) (Given, error) {
	var given Given
	names, err := m.files()
	if err != nil {
		return given, err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return filepath.Ext(name) != ".json" })
	known := map[string]bool{}
	environment := map[string]string{}
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(m.CDI(), name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // of another claim, unprepared meanwhile
		}
		var s spec
		if err := errors.Join(err, json.Unmarshal(content, &s)); err != nil {
			return given, fmt.Errorf("read CDI spec %s: %w", name, err)
		}
		for _, device := range s.Devices {
			id := s.Kind + "=" + device.Name
			if !slices.Contains(devices, id) {
				continue
			}
			known[id] = true
			for _, mount := range device.Edits.Mounts {
				if _, err := os.Stat(mount.HostPath); err != nil {
					return given, fmt.Errorf("CDI device %s: %w", id, err)
				}
			}
			for _, node := range device.Edits.Nodes {
				if gpu, ok := m.Seen[path.Base(node.Path)]; ok {
					given.addGPU(gpu.Address)
				}
			}
			for _, variable := range device.Edits.Env {
				name, value, _ := strings.Cut(variable, "=")
				environment[name] = value // a container keeps the last of several
			}
		}
	}
	for _, id := range devices {
		kind, name, _ := strings.Cut(id, "=")
		if !known[id] {
			return given, fmt.Errorf("CDI device %s is in no spec of %s", id, names)
		}
		if gpu, ok := m.Seen[name]; ok && strings.HasSuffix(kind, "nvidia.com/gpu") {
			given.addGPU(gpu.Address)
		}
	}
	return given, given.read(m, environment)
}

// read adds the devices in environment variables.
func (g *Given) read(m *Machine, environment map[string]string) error {
	for name, value := range environment {
		switch {
		case name == "NVIDIA_VISIBLE_DEVICES":
			for uuid := range strings.SplitSeq(value, ",") {
				if gpu, ok := m.Seen[uuid]; ok {
					g.addGPU(gpu.Address)
				}
			}
		case strings.HasPrefix(name, "PCIDEVICE_") && !strings.HasSuffix(name, "_INFO"):
			for text := range strings.SplitSeq(value, ",") {
				vf, err := topology.ParseAddress(text)
				if err != nil {
					return fmt.Errorf("read variable %s: %w", name, err)
				}
				g.VFs = append(g.VFs, vf)
			}
		}
	}
	return nil
}

func (g *Given) addGPU(gpu topology.Address) {
	if !slices.Contains(g.GPUs, gpu) {
		g.GPUs = append(g.GPUs, gpu)
	}
}

// SameSwitch returns the maximum number of pairs of a GPU and a VF on one switch.
func (m *Machine) SameSwitch(g Given) int {
	vfs := map[string]int{}
	for _, vf := range g.VFs {
		vfs[m.Tree.Switch(vf)]++
	}
	pairs := 0
	for _, gpu := range g.GPUs {
		if at := m.Tree.Switch(gpu); vfs[at] > 0 {
			vfs[at]--
			pairs++
		}
	}
	return pairs
}
