package coordination

import (
	"context"

	"github.com/tandem-k8s/tandem/topology"
)

// Kind says which half of a pair a resource is.
type Kind string

// The two halves of a pair.
const (
	GPU Kind = "gpu"
	VF  Kind = "vf"
)

// Device is a device as its plugin announces it.
type Device struct {
	ID      string            // the kubelet's device ID
	Address topology.Address  // PCI function; of a partition, the function of its card
	NUMA    topology.NUMANode // as told to the kubelet: unknown where the plugin sends no TopologyInfo
	Healthy bool
}

// Announcement is everything a plugin says of one resource.
type Announcement struct {
	Devices []Device
	Links   []topology.Link // GPU to GPU links, for GPUs
}

// Member is one resource of one plugin taking part in coordination. Its methods never fail and never block longer
// than their deadline: with the coordinator away they answer from what this plugin knows alone.
type Member struct{}

// Publish announces the resource's devices; the newest announcement replaces the one before.
func (m *Member) Publish(a Announcement) {}

// Prefer answers GetPreferredAllocation within 100 ms: size of the available IDs, the mustInclude ones among them.
func (m *Member) Prefer(ctx context.Context, available, mustInclude []string, size int) []string {
	return nil
}

// Allocated reports what the kubelet took, and returns the same IDs in the order in which the container should list
// them, so that its i-th GPU pairs with its i-th VF.
func (m *Member) Allocated(ctx context.Context, ids []string) []string { return ids }
