// SPDX-License-Identifier: Apache-2.0

// Package facts reads the input of a node's publications: the plugins' announcements, sysfs, and the
// kubelet's configuration and checkpoints.
package facts

import (
	"errors"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/topology"
)

// ErrUnread means that the devices of pods were never read. Then no device is known to be free.
var ErrUnread = errors.New("devices of pods are not known")

// Facts are the facts at one moment. Facts are immutable.
type Facts struct {
	Tree      *topology.Tree
	Resources []Resource // by name, ascending
	NUMANodes []NUMANode // by number, ascending
	Kubelet   model.Kubelet
	Enforced  bool // the annotations of pods are
	Alignment model.Alignment

	Devices   []Held    // containers in the kubelet's device checkpoint
	Gone      Gone      // pods in the checkpoint that no longer hold anything
	Exclusive Exclusive // among the pods that the kubelet lists
	// CPUs and Memory are those of a static CPU manager and memory manager, with their containers. A manager is
	// not read if its policy is another, and if its file could never be read.
	CPUs   kubelet.Reading[kubelet.CPUState]
	Memory kubelet.Reading[kubelet.MemoryState]

	// Unread is the reason for unknown devices of pods, an ErrUnread; nil if known.
	Unread error
	// Stale is the reason for assignments of an earlier time, or for a static manager that was never read; nil
	// if all are current.
	Stale error
}

// Resource is a resource that a plugin has announced.
type Resource struct {
	Name    string
	Kind    device.Kind
	Devices []device.Device // by address and ID
	Links   []topology.Link
}

// CPUStatic and MemoryStatic are the policies under which containers get exclusive CPUs and memory.
const (
	CPUStatic    = "static"
	MemoryStatic = "Static"
)
