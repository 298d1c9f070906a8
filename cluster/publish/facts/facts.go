// SPDX-License-Identifier: Apache-2.0

// Package facts is what a node publishes, as it was read: of the plugins' announcements, of sysfs, and of the
// kubelet, whose files and configuration say how it admits pods and what it has given to them.
package facts

import (
	"github.com/tandem-k8s/tandem/cluster/v1alpha1"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/topology"
)

// Facts are those of one moment. They never change.
type Facts struct {
	Tree      *topology.Tree
	Resources []Resource // by name, ascending
	NUMANodes []NUMANode // by number, ascending
	Kubelet   v1alpha1.Kubelet
	Enforced  bool // the annotations of pods are

	Devices   []Held      // what the kubelet's device checkpoint says of containers
	Gone      Gone        // pods of that which hold nothing any more
	Exclusive Exclusive   // of the pods that the kubelet lists
	CPUs      CPUState    // of the kubelet's CPU manager
	Memory    MemoryState // of its memory manager
}

// Resource is what a plugin has announced.
type Resource struct {
	Name    string
	Kind    device.Kind
	Devices []device.Device // by address and ID
	Links   []topology.Link
}

// Container is one of a pod.
type Container struct{ PodUID, Name string }

// Held are the devices that the kubelet has given to a container.
type Held struct {
	Container
	Devices map[string][]string // IDs by resource
}

// CPUStatic and MemoryStatic are the policies under which containers get CPUs and memory of their own.
const (
	CPUStatic    = "static"
	MemoryStatic = "Static"
)

// HasCPUs reports whether containers can get CPUs of their own.
func (f Facts) HasCPUs() bool { return f.Kubelet.CPUManagerPolicy == CPUStatic }

// HasMemory reports whether containers can get memory of NUMA nodes of their own.
func (f Facts) HasMemory() bool { return f.Kubelet.MemoryManagerPolicy == MemoryStatic }
