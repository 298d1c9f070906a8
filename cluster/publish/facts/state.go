// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Checkpoint files of the kubelet's managers in the kubelet's folder.
const (
	CPUStateFile    = "cpu_manager_state"
	MemoryStateFile = "memory_manager_state"
)

// CPUState is the CPU manager's assignment (pkg/kubelet/cm/cpumanager/state/checkpoint.go).
type CPUState struct {
	Entries map[string]map[string]string `json:"entries"` // pod UID, container, CPUs
}

// MemoryState is the memory manager's total and assignment
// (pkg/kubelet/cm/memorymanager/state/checkpoint.go).
type MemoryState struct {
	Machine map[string]struct { // by NUMA node
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

// readState reads a checkpoint file, and changes nothing if the file is unreadable. An absent file counts as
// empty, because the kubelet has not started yet.
func readState[T any](kubeletDir, name string, into **T) error {
	read, path := new(T), filepath.Join(kubeletDir, name)
	content, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(content, read)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the kubelet's %s: %w", path, err)
	}
	*into = read
	return nil
}
