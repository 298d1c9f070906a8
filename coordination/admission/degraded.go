// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"cmp"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/topology"
)

// DegradedContainer is a running container with GPUs and VFs.
type DegradedContainer struct {
	Owner     *api.Owner
	GPUs, VFs int
	Apart     int // GPUs that share no switch with a VF of their own; with shared VFs, with any VF
}

// FindDegraded returns the degraded containers with a known owner, by name.
func FindDegraded(resources []*api.Resource) []DegradedContainer {
	var list []DegradedContainer
	for _, h := range holdings(resources) {
		if c := h.container(); c.VFs > 0 && c.Apart > 0 {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b DegradedContainer) int {
		return cmp.Or(cmp.Compare(a.Owner.GetNamespace(), b.Owner.GetNamespace()),
			cmp.Compare(a.Owner.GetPod(), b.Owner.GetPod()),
			cmp.Compare(a.Owner.GetContainer(), b.Owner.GetContainer()))
	})
	return list
}

// holding holds the devices of a container.
type holding struct {
	owner    *api.Owner
	units    map[string]bool
	switches map[string]*counts
}

// holdingContainer identifies a container: by the UID of its pod or, if unknown, by the pod's name.
type holdingContainer struct{ uid, pod, name string }

// containerOf returns the container of a device's owner.
func containerOf(o *api.Owner) holdingContainer {
	if o.GetUid() != "" {
		return holdingContainer{uid: o.GetUid(), name: o.GetContainer()}
	}
	return holdingContainer{pod: o.GetNamespace() + "/" + o.GetPod(), name: o.GetContainer()}
}

// counts holds the numbers of devices of one switch.
type counts struct{ gpus, vfs int }

// holdings returns the devices of all containers. A unit that two resources have counts once; replicas count
// each.
func holdings(resources []*api.Resource) map[holdingContainer]*holding {
	held := map[holdingContainer]*holding{}
	for _, r := range resources {
		for _, d := range r.GetDevices() {
			owner := d.GetOwner()
			if owner == nil {
				continue
			}
			of := containerOf(owner)
			if held[of] == nil {
				held[of] = &holding{owner, map[string]bool{}, map[string]*counts{}}
			}
			unit := d.GetDevice().GetUnit()
			if unit == "" || d.GetDevice().GetShared() || !held[of].units[unit] {
				held[of].units[unit] = true
				held[of].add(device.Kind(r.GetKind()), d.GetSwitch())
			}
		}
	}
	return held
}

func (h *holding) add(kind device.Kind, at string) {
	if h.switches[at] == nil {
		h.switches[at] = &counts{}
	}
	if kind == device.GPU {
		h.switches[at].gpus++
	} else {
		h.switches[at].vfs++
	}
}

// container counts the GPUs without a VF on their switch. Each GPU needs a VF of its own if there are as many
// VFs as GPUs; otherwise any VF, because a VF serves several GPUs.
func (h *holding) container() DegradedContainer {
	c := DegradedContainer{Owner: h.owner}
	for _, n := range h.switches {
		c.GPUs += n.gpus
		c.VFs += n.vfs
	}
	for name, n := range h.switches {
		switch near := topology.IsSwitch(name); {
		case !near:
			c.Apart += n.gpus
		case c.VFs >= c.GPUs:
			c.Apart += max(0, n.gpus-n.vfs)
		case n.vfs == 0:
			c.Apart += n.gpus
		}
	}
	return c
}
