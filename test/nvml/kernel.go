// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
)

// KernelGPU is the kernel's data of a GPU, independent of NVML.
type KernelGPU struct {
	Address topology.Address
	Minor   string // of /dev/nvidia<minor>
	NUMA    string // from sysfs, "-1" for unknown
}

// information is the driver's folder of GPUs in /proc.
const information = "driver/nvidia/gpus"

// KernelGPUs reads /proc/driver/nvidia/gpus/<address>/information, by UUID ("The /proc filesystem interface"
// in the README of NVIDIA's driver), and numa_node in sysfs. It omits GPUs that the driver is configured to
// ignore. Before the first use of a GPU by NVML the driver lacks its UUID.
func KernelGPUs(sys, proc fs.FS) (map[string]KernelGPU, error) {
	files, err := fs.Glob(proc, information+"/*/information")
	if err != nil {
		return nil, err
	}
	gpus := map[string]KernelGPU{}
	for _, file := range files {
		content, err := fs.ReadFile(proc, file)
		if err != nil {
			return nil, err
		}
		said := fields(content)
		if said["GPU Excluded"] == "Yes" {
			continue
		}
		address, err := topology.ParseAddress(path.Base(path.Dir(file)))
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		numa, err := fs.ReadFile(sys, path.Join("bus/pci/devices", address.String(), "numa_node"))
		if err != nil {
			return nil, err
		}
		gpus[said["GPU UUID"]] = KernelGPU{
			Address: address, Minor: said["Device Minor"], NUMA: strings.TrimSpace(string(numa)),
		}
	}
	return gpus, nil
}

func fields(content []byte) map[string]string {
	said := map[string]string{}
	for lines := bufio.NewScanner(bytes.NewReader(content)); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), ":")
		said[key] = strings.TrimSpace(value)
	}
	return said
}

// WriteInformation writes the files that KernelGPUs reads into a folder that replaces /proc.
func (m Machine) WriteInformation(proc string) error {
	for _, g := range m.GPUs {
		dir := filepath.Join(proc, information, g.Address.String())
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return err
		}
		text := fmt.Sprintf("Model: \t\t %s\nGPU UUID: \t %s\nBus Location: \t %s\nDevice Minor: \t %d\n"+
			"GPU Excluded:\t No\n", g.Name, g.UUID, g.Address, g.Minor)
		if err := os.WriteFile(filepath.Join(dir, "information"), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}
