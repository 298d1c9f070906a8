// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/tandem-k8s/tandem/coordination/system"
)

// Files in the kubelet's folder with the states of its managers. A manager writes its file at each start
// of the kubelet, also without containers.
const (
	CPUStateFile    = "cpu_manager_state"
	MemoryStateFile = "memory_manager_state"
)

// CPUState is the CPU manager's assignment (pkg/kubelet/cm/cpumanager/state/checkpoint.go).
type CPUState struct {
	PolicyName    string                       `json:"policyName"`
	DefaultCPUSet string                       `json:"defaultCpuSet"`
	Entries       map[string]map[string]string `json:"entries"` // pod UID, container, CPUs
}

// MemoryState is the memory manager's total and assignment
// (pkg/kubelet/cm/memorymanager/state/checkpoint.go).
type MemoryState struct {
	PolicyName string              `json:"policyName"`
	Machine    map[string]struct { // by NUMA node
		Memory map[string]struct { // by kind: memory, hugepages-2Mi
			Total          uint64 `json:"total"`
			SystemReserved uint64 `json:"systemReserved"`
			Allocatable    uint64 `json:"allocatable"`
			Reserved       uint64 `json:"reserved"`
			Free           uint64 `json:"free"`
		} `json:"memoryMap"`
		Cells []int `json:"cells"` // the nodes of the last assigned memory
	} `json:"machineState"`
	Entries map[string]map[string][]MemoryBlock `json:"entries"` // pod UID, container
}

// MemoryBlock is a container's memory on NUMA nodes, in bytes.
type MemoryBlock struct {
	NUMANodes []int  `json:"numaAffinity"`
	Type      string `json:"type"`
	Size      uint64 `json:"size"`
}

// ReadCPUState reads the CPU manager's state below a kubelet directory.
func ReadCPUState(kubeletDir string) (CPUState, error) {
	return readState[CPUState](kubeletDir, CPUStateFile, "policyName", "defaultCpuSet")
}

// ReadMemoryState reads the memory manager's state below a kubelet directory.
func ReadMemoryState(kubeletDir string) (MemoryState, error) {
	return readState[MemoryState](kubeletDir, MemoryStateFile, "policyName", "machineState")
}

func readState[T any](kubeletDir, name string, keys ...string) (state T, err error) {
	path := filepath.Join(kubeletDir, name)
	content, err := os.ReadFile(path)
	if err == nil {
		state, err = system.Decode[T](content, system.Layout{Keys: keys})
	}
	if err != nil {
		return state, fmt.Errorf("read the kubelet's %s: %w", path, err)
	}
	return state, nil
}
