// SPDX-License-Identifier: Apache-2.0

package dra_test

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
)

// TestAdminAccess: a claim with admin access to every device of the driver, such as that of a monitoring pod,
// is prepared, and its container gets each device node once. It owns nothing: the status shows the pod that
// has a GPU as its owner, and a GPU to which there is only admin access as free.
func TestAdminAccess(t *testing.T) {
	t.Parallel()
	c, n := newCluster(t, "v1.37.1"), newNode(t, machine, 1)
	config, _ := n.config(c, "")
	n.start(config)
	k := n.register("")
	published := c.awaitPublished(func(devices map[string]resourceapi.Device, _ int) bool {
		return len(devices) == 24 // GPUs, VFs and pairs
	})
	train := newClaim("train", "gpu", "gpu-11-00-0")
	watch := newAdminClaim("watch", slices.Collect(maps.Keys(published))...)
	c.reserve("train-0", train)
	c.reserve("watch-0", watch)
	for _, claim := range []*resourceapi.ResourceClaim{train, watch} {
		if _, wrong := k.prepare(t.Context(), claim); wrong != "" {
			t.Fatal(claim.Name, wrong)
		}
		if taken, free := n.owner(t, "0000:11:00.0"), n.owner(t, "0000:2f:00.0"); taken != "train-0" || free != "" {
			t.Errorf("with claim %s: owners %q and %q, want train-0 and none", claim.Name, taken, free)
		}
	}
	if node := repeatedNode(t, n.spec(watch)); node != "" {
		t.Errorf("%s is in the CDI spec twice", node)
	}
}

// repeatedNode returns a device node that one device of a CDI spec has twice, "" for none.
func repeatedNode(t *testing.T, text string) string {
	t.Helper()
	var spec struct {
		Devices []struct {
			ContainerEdits struct{ DeviceNodes []struct{ Path string } }
		}
	}
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		t.Fatal(err)
	}
	for _, d := range spec.Devices {
		seen := map[string]bool{}
		for _, node := range d.ContainerEdits.DeviceNodes {
			if seen[node.Path] {
				return node.Path
			}
			seen[node.Path] = true
		}
	}
	return ""
}

// owner returns the pod that the status shows as the owner of an allocated device, "" for a free one.
func (n *node) owner(t *testing.T, id string) string {
	t.Helper()
	for _, r := range n.status(t).GetResources() {
		for _, d := range r.GetDevices() {
			if d.GetDevice().GetId() == id && d.GetAllocated() {
				return d.GetOwner().GetPod()
			}
		}
	}
	return ""
}
