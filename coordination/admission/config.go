// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"log/slog"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/devicemanager"
	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/topology"
)

// Config has the sources and the observer of a coordinator. The functions must be safe for concurrent use.
type Config struct {
	RunDir    string           // folder of the saved state and of pairs files
	Disk      system.Disk      // of the same files
	Alignment intent.Alignment // of pods without a setting
	Log       *slog.Logger
	Observer  DecisionObserver // nil for none

	// Refresh reads the PCI tree if an announcement has devices missing in the newest tree.
	Refresh func(device.Announcement) error
	// Newest returns the last read tree.
	Newest func() *topology.Tree
	// Look returns all pods by PodResources List. Look is never called during an Allocate. May be nil.
	Look func(context.Context) (kubelet.View, error)
	// Get returns a pod by PodResources Get, which is safe at any time.
	Get func(context.Context, kubelet.Pod) (kubelet.View, error)
	// Recorded reads the device holders in the kubelet's checkpoint.
	Recorded func() (kubelet.Checkpoint, error)
	// Granted reads the devices and mounts of containers in the checkpoint.
	Granted func() ([]kubelet.Granted, error)
	// Pods returns the requests of the node's pods. May be nil.
	Pods func(context.Context) (intent.Answer, error)
	// Life identifies the running kubelet; "" if unknown. May be nil.
	Life func() string
	// AllocatableCPUs returns the CPUs available for exclusive use. May be nil.
	AllocatableCPUs func(context.Context) (topology.CPUSet, error)
	// NodeCPUs returns all CPUs by NUMA node.
	NodeCPUs func() map[int]topology.CPUSet
	// Manager returns the kubelet's Topology Manager. May be nil.
	Manager func() (devicemanager.Kubelet, error)
}
