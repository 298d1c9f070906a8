// SPDX-License-Identifier: Apache-2.0

// Package kubelet reads the kubelet's data about pods and their devices, and its configuration as it does: a
// file, drop-ins and flags, with the origin of each value.
//
// The PodResources List call has a side effect: while an Allocate is in flight it can make the kubelet forget
// the devices of that Allocate and assign them twice (kubernetes PR 137534). Inside GetPreferredAllocation,
// before the kubelet marks devices, the call is safe; Tandem calls List only there, and only if must-include
// is empty. The kubelet limits all callers of a node together to 100 calls a second with a burst of 10
// (pkg/kubelet/apis/podresources/server_v1.go, pkg/kubelet/apis/grpc/ratelimit.go).
//
// The Pods API and GET /pods of the HTTPS server only read the pod manager; they may be called at any time.
// The Pods API has a rate limiter of its own, of the same size.
package kubelet

import (
	"errors"
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

// ErrNotRead is the error of what nobody has read.
var ErrNotRead = errors.New("not read")

// Reading is a value that a reader has read, or why the value is unknown, for structs that keep what was
// read. The zero value was not read.
type Reading[T any] struct {
	value T
	err   error
	read  bool
}

// Read returns the result of a reader.
func Read[T any](value T, err error) Reading[T] { return Reading[T]{value, err, true} }

// IsKnown reports whether the value was read.
func (r Reading[T]) IsKnown() bool { return r.read && r.err == nil }

// Get returns the value, or why the value is unknown.
func (r Reading[T]) Get() (value T, err error) {
	switch {
	case !r.read:
		return value, ErrNotRead
	case r.err != nil:
		return value, r.err
	default:
		return r.value, nil
	}
}
