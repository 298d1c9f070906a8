// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/test/history"
	"github.com/tandem-k8s/tandem/test/model/topologymanager"
	"github.com/tandem-k8s/tandem/topology"
)

var (
	errRefused = errors.New("refused")

	// ErrTopologyAffinity means that the Topology Manager rejects a pod.
	ErrTopologyAffinity = errors.New("TopologyAffinityError")
)

// Admit admits a pod. After an error the pod has failed, but its containers still have their devices.
func (k *Kubelet) Admit(p *Pod, plugins Plugins) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.uids++
	p.UID, p.created, p.listed = fmt.Sprint("uid-", k.uids), k.Now(), true
	p.reuse = map[string]map[string]bool{}
	k.pods = append(k.pods, p)
	k.History.Note(p.arrival())
	var failed string
	err := k.alignPod(p)
	for i := 0; i < len(p.Containers) && err == nil; i++ {
		failed = p.Containers[i].Name
		p.Containers[i].Devices = kubelet.Devices{}
		err = k.admit(p, p.Containers[i], plugins)
	}
	verdict := p.event(history.Verdict)
	if err != nil {
		verdict.Container, verdict.Refusal, verdict.Own = failed, err.Error(), !errors.Is(err, errRefused)
	}
	k.History.Note(verdict)
	if err != nil {
		k.end(p)
	}
	return err
}

// alignPod aligns all containers of a pod to the same NUMA nodes, under scope pod.
func (k *Kubelet) alignPod(p *Pod) error {
	if k.None || !k.ScopePod {
		return nil
	}
	k.collect()
	nodes, admitted := k.affinity(p.total(), nil)
	if !admitted {
		return ErrTopologyAffinity
	}
	for _, c := range p.Containers {
		c.Nodes = nodes
	}
	return nil
}

// align aligns a container to NUMA nodes, under scope container.
func (k *Kubelet) align(p *Pod, c *Container) error {
	if k.None || k.ScopePod {
		return nil
	}
	k.collect()
	admitted := false
	if c.Nodes, admitted = k.affinity(c.Requests, p.reuse); !admitted {
		return ErrTopologyAffinity
	}
	return nil
}

// affinity returns the NUMA nodes for requests and reusable devices; nil for no affinity.
func (k *Kubelet) affinity(requests map[string]int, reuse map[string]map[string]bool) ([]int, bool) {
	var resources []topologymanager.Resource
	for name, count := range requests {
		all := k.all(name)
		reusable := slices.DeleteFunc(slices.Clone(all), func(d device.Device) bool { return !reuse[name][d.ID] })
		resources = append(resources, topologymanager.Resource{
			Count: count, All: places(all), Free: places(k.free(name)), Reusable: places(reusable),
		})
	}
	return k.Topology.Affinity(resources)
}

// all returns the devices of a resource, healthy or not.
func (k *Kubelet) all(resource string) []device.Device {
	return slices.Concat(k.Devices[resource], k.Failed[resource])
}

// places returns the NUMA nodes of devices.
func places(devices []device.Device) (nodes []topology.NUMANode) {
	for _, d := range devices {
		nodes = append(nodes, d.NUMA)
	}
	return nodes
}

// total returns the requests of a pod under scope pod (PodLimits in k8s.io/component-helpers).
func (p *Pod) total() map[string]int {
	run, sidecars, most := map[string]int{}, map[string]int{}, map[string]int{}
	for _, c := range p.Containers {
		for name, count := range c.Requests {
			switch c.Role {
			case Init:
				most[name] = max(most[name], sidecars[name]+count)
			case Sidecar:
				sidecars[name] += count
				run[name] += count
			case App:
				run[name] += count
			}
			most[name] = max(most[name], run[name])
		}
	}
	return most
}

// admit allocates the devices of a container.
func (k *Kubelet) admit(p *Pod, c *Container, plugins Plugins) error {
	if err := k.align(p, c); err != nil {
		return err
	}
	k.collect()
	k.History.Note(p.alignment(c))
	c.Choice, c.Must = map[string][]string{}, map[string][]string{}
	for name, count := range c.Requests {
		aligned, unaligned, others := k.byAffinity(name, c.Nodes)
		c.Choice[name] = slices.Concat(aligned, others)
		if len(aligned) < count && len(unaligned) > 0 {
			c.Must[name], c.Choice[name] = aligned, slices.Concat(unaligned, others)
		}
	}
	names := slices.Sorted(maps.Keys(c.Requests))
	k.order(c, names)
	for i, name := range names {
		if i > 0 && k.happens(k.Trouble.Fail) {
			return errors.New("failed between two resources")
		}
		if others := k.others(p); k.happens(k.Trouble.End) && len(others) > 0 {
			k.end(others[k.random.IntN(len(others))])
		}
		if err := k.allocate(p, c, name, plugins); err != nil {
			return err
		}
		if k.happens(k.Trouble.Change) {
			k.History.Note(history.Event{Kind: history.Fault, Text: "a plugin's list changes"})
			if err := k.write(); err != nil {
				return err
			}
		}
	}
	if len(names) == 0 {
		return nil
	}
	if err := k.write(); err != nil {
		return err
	}
	k.History.Note(p.confirmation(c))
	return nil
}

// others returns the pods that have not ended, except one.
func (k *Kubelet) others(one *Pod) []*Pod {
	return slices.DeleteFunc(k.Pods(), func(p *Pod) bool { return p == one })
}

func (k *Kubelet) happens(chance float64) bool { return k.random.Float64() < chance }
