// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"maps"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/test/history"
)

// Chance makes the choices for which the kubelet uses the order of a Go map.
type Chance interface {
	// Order sorts the resources of a container in the order of their allocation.
	Order(c *Container, names []string)
	// Pick returns some devices of a list with more.
	Pick(c *Container, of []string, count int) []string
}

// order puts the resources of a container in the order of their allocation.
func (k *Kubelet) order(c *Container, names []string) {
	if k.Chance != nil {
		k.Chance.Order(c, names)
		return
	}
	if k.First == "" {
		k.random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		return
	}
	if i := slices.Index(names, k.First); i > 0 {
		names[0], names[i] = names[i], names[0]
	}
}

// take adds devices of a list to those of a container, up to a number of devices.
func (k *Kubelet) take(c *Container, ids, list []string, count int) []string {
	list = slices.DeleteFunc(slices.Clone(list), func(id string) bool { return slices.Contains(ids, id) })
	switch missing := count - len(ids); {
	case len(list) <= missing:
		return append(ids, list...)
	case k.Chance != nil && missing > 0:
		return append(ids, k.Chance.Pick(c, list, missing)...)
	default:
		return append(ids, list[:missing]...)
	}
}

// byAffinity sorts the free devices of a resource by the NUMA nodes of a container (filterByAffinity): on the
// nodes, on other nodes, and devices without a node. Without affinity, or without a device that has a node,
// all are others.
func (k *Kubelet) byAffinity(name string, nodes []int) (aligned, unaligned, others []string) {
	hinted := slices.ContainsFunc(k.all(name), func(d device.Device) bool {
		_, known := d.NUMA.Number()
		return known
	})
	for _, d := range k.free(name) {
		switch n, known := d.NUMA.Number(); {
		case !hinted || nodes == nil || !known:
			others = append(others, d.ID)
		case slices.Contains(nodes, n):
			aligned = append(aligned, d.ID)
		default:
			unaligned = append(unaligned, d.ID)
		}
	}
	return aligned, unaligned, others
}

// choose returns the devices of a resource for a container (devicesToAllocate).
func (k *Kubelet) choose(p *Pod, c *Container, name string, plugins Plugins) ([]string, error) {
	count := c.Requests[name]
	if len(k.Devices[name]) == 0 {
		return nil, fmt.Errorf("too few %s", name) // also for a request of 0
	}
	ids := k.take(c, nil, slices.Sorted(maps.Keys(p.reuse[name])), count)
	c.Reused = c.Reused || len(ids) > 0
	if len(ids) == count {
		return ids, nil // none, or all devices of init containers
	}
	aligned, unaligned, others := k.byAffinity(name, c.Nodes)
	if len(ids)+len(aligned)+len(unaligned)+len(others) < count {
		return nil, fmt.Errorf("too few %s", name)
	}
	q := Question{Resource: name, Available: aligned, MustInclude: ids, Size: count}
	if len(ids)+len(aligned) > count {
		return k.prefer(p, c, q, plugins, aligned)
	}
	if q.MustInclude = append(ids, aligned...); len(q.MustInclude) == count {
		return q.MustInclude, nil
	}
	q.Available = slices.Concat(unaligned, others)
	return k.prefer(p, c, q, plugins, unaligned, others)
}

// prefer asks the plugin to complete the devices of a container, and fills up a short answer from lists. The
// question offers the devices that must be included too.
func (k *Kubelet) prefer(
	p *Pod, c *Container, q Question, plugins Plugins, lists ...[]string,
) ([]string, error) {
	free := q.Available
	q.Available = slices.Concat(q.MustInclude, free)
	k.random.Shuffle(len(q.Available), func(i, j int) {
		q.Available[i], q.Available[j] = q.Available[j], q.Available[i]
	})
	c.Asked = append(c.Asked, q.Resource)
	answer := k.ask(p, c, q, plugins)
	if answer == nil {
		return nil, fmt.Errorf("0 of %d %s preferred", q.Size, q.Resource)
	}
	foreign := func(id string) bool { return !slices.Contains(free, id) }
	ids := k.take(c, q.MustInclude, slices.DeleteFunc(slices.Clone(answer), foreign), q.Size)
	for _, list := range lists {
		ids = k.take(c, ids, list, q.Size)
	}
	if device.SameSet(ids, answer) {
		return answer, nil // in the order of the plugin
	}
	return ids, nil
}

// allocate allocates the requested devices of a resource (devicesToAllocate and Allocate).
func (k *Kubelet) allocate(p *Pod, c *Container, name string, plugins Plugins) error {
	ids, err := k.choose(p, c, name, plugins)
	if err != nil || len(ids) == 0 {
		return err
	}
	k.Open = k.History.Call(p.of(history.Allocation, c, name, ids))
	allocated := false
	k.unlocked(func() { allocated = plugins.Allocate(p, c, name, ids) })
	k.History.Return(k.Open, nil)
	if !allocated {
		return errRefused
	}
	c.Devices[name] = ids
	of := holder{p.UID, c.Name}
	if k.held[of] == nil {
		k.held[of] = kubelet.Devices{}
	}
	k.held[of][name] = ids
	k.responses[of] = c.Responses
	if p.reuse[name] == nil {
		p.reuse[name] = map[string]bool{}
	}
	for _, id := range ids {
		if c.Role == Init {
			p.reuse[name][id] = true
		} else {
			delete(p.reuse[name], id)
		}
	}
	return nil
}
