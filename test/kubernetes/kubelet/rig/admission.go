// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/test/best"
	"github.com/tandem-k8s/tandem/test/kubernetes/machine"
	"github.com/tandem-k8s/tandem/topology"
)

// admission has the devices available to a pod's containers during its admission.
type admission struct {
	*Rig
	pod      *v1.Pod
	free     map[string][]string // by resource
	reusable map[string][]string // left by init containers, for the app containers to take first
}

func newAdmission(r *Rig, pod *v1.Pod) *admission {
	a := &admission{Rig: r, pod: pod, free: map[string][]string{}, reusable: map[string][]string{}}
	for _, resource := range []string{r.GPU, VF} {
		for id := range r.Node.Inventory(resource) {
			if r.held[holding{resource, id}] == nil {
				a.free[resource] = append(a.free[resource], id)
			}
		}
	}
	return a
}

// placement describes and judges a container's devices.
func (a *admission) placement(
	ctx context.Context, container string, devices map[string][]string,
) (Placement, error) {
	p := Placement{Container: container, NUMA: a.Node.Affinity(a.pod, container)}
	if err := a.checkFree(devices); err != nil {
		return p, err
	}
	response, err := a.Node.Response(ctx, a.pod, container)
	if err != nil {
		return p, err
	}
	if p.GPUs, err = a.visibleGPUs(response); err != nil {
		return p, err
	}
	if p.VFs, err = visibleVFs(response); err != nil {
		return p, err
	}
	if err := a.sameDevices(devices, p); err != nil {
		return p, err
	}
	gpus, vfs := addresses(p.GPUs), addresses(p.VFs)
	for i := range min(len(gpus), len(vfs)) {
		p.Levels = append(p.Levels, a.Level(gpus[i], vfs[i]))
	}
	p.Pairs = best.Count(p.Levels)
	if p.Matched, err = best.Reachable(best.Of(gpus), best.Of(vfs), a.Level); err != nil {
		return p, err
	}
	p.Best, err = best.Reachable(a.side(a.GPU, len(gpus), p.NUMA), a.side(VF, len(vfs), p.NUMA), a.Level)
	return p, err
}

// checkFree returns an error for devices that another container holds. Their health does not matter, because
// their plugin may have ended since.
func (a *admission) checkFree(devices map[string][]string) error {
	for resource, ids := range devices {
		for _, id := range ids {
			if slices.Contains(a.reusable[resource], id) {
				continue
			}
			if pod := a.held[holding{resource, id}]; pod != nil {
				return fmt.Errorf("got %s %s, which belongs to pod %s", resource, id, pod.Name)
			}
			if _, known := a.Address[id]; !known {
				return fmt.Errorf("got %s %s, which the machine does not have", resource, id)
			}
		}
	}
	return nil
}

// sameDevices compares the kubelet's devices of a container with those visible in the container.
func (r *Rig) sameDevices(booked map[string][]string, p Placement) error {
	for resource, visible := range map[string][]machine.Device{r.GPU: p.GPUs, VF: p.VFs} {
		var ids []string
		for _, d := range visible {
			ids = append(ids, d.ID)
		}
		slices.Sort(ids)
		if !slices.Equal(ids, booked[resource]) {
			return fmt.Errorf("kubelet gave %s %v, container finds %v", resource, booked[resource], ids)
		}
	}
	return nil
}

// side returns the kubelet's choice for a container and a resource: all devices of init containers, and free
// devices of the NUMA nodes; if init containers left more than wanted, only a choice among those.
func (a *admission) side(resource string, want int, numa []int) best.Side {
	reusable := a.addressesOf(a.reusable[resource])
	if len(reusable) > want {
		return best.Side{Free: reusable, Want: want}
	}
	return best.Side{Held: reusable, Free: a.addressesOf(a.aligned(resource, numa)), Want: want}
}

// aligned returns the free devices on the NUMA nodes, or all free ones for a resource without hints or
// without chosen nodes.
func (a *admission) aligned(resource string, numa []int) []string {
	inventory := a.Node.Inventory(resource)
	hinted := false
	for _, nodes := range inventory {
		hinted = hinted || len(nodes) > 0
	}
	if !hinted || len(numa) == 0 {
		return a.free[resource]
	}
	return slices.DeleteFunc(slices.Clone(a.free[resource]), func(id string) bool {
		return !slices.ContainsFunc(inventory[id], func(n int) bool { return slices.Contains(numa, n) })
	})
}

// settle records a container's devices: they are no longer free, and those of an init container can be reused
// by later containers.
func (a *admission) settle(devices map[string][]string, init bool) {
	for resource, ids := range devices {
		taken := func(id string) bool { return slices.Contains(ids, id) }
		a.free[resource] = slices.DeleteFunc(a.free[resource], taken)
		a.reusable[resource] = slices.DeleteFunc(a.reusable[resource], taken)
		if init {
			a.reusable[resource] = append(a.reusable[resource], ids...)
		}
	}
}

// addressesOf returns an address per device, so that partitions of a card repeat its address.
func (r *Rig) addressesOf(ids []string) []topology.Address {
	var list []topology.Address
	for _, id := range ids {
		list = append(list, r.Address[id])
	}
	return list
}

func addresses(devices []machine.Device) []topology.Address {
	var list []topology.Address
	for _, d := range devices {
		list = append(list, d.Address)
	}
	return list
}
