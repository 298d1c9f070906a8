// SPDX-License-Identifier: Apache-2.0

package model

import (
	"maps"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/test/history"
)

// mostEvents bounds the history of a kubelet.
const mostEvents = 1_000_000

// event returns an event of the pod.
func (p *Pod) event(kind history.Kind) history.Event {
	return history.Event{Kind: kind, Pod: p.Namespace + "/" + p.Name, UID: p.UID}
}

// arrival returns the begin of the pod's admission.
func (p *Pod) arrival() history.Event {
	e := p.event(history.Arrival)
	e.Spec = &history.Spec{Required: p.Alignment == intent.Required}
	for _, c := range p.Containers {
		e.Spec.Containers = append(e.Spec.Containers, history.Container{
			Name: c.Name, Init: c.Role == Init, Requests: maps.Clone(c.Requests),
		})
	}
	return e
}

// alignment returns the Topology Manager's choice for a container.
func (p *Pod) alignment(c *Container) history.Event {
	e := p.event(history.Alignment)
	e.Container, e.Nodes = c.Name, c.Nodes
	return e
}

// of returns an event of a container's devices.
func (p *Pod) of(kind history.Kind, c *Container, resource string, ids []string) history.Event {
	e := p.event(kind)
	e.Container, e.Resource, e.Devices = c.Name, resource, slices.Clone(ids)
	return e
}

// confirmation returns the record of a container in the checkpoint.
func (p *Pod) confirmation(c *Container) history.Event {
	e := p.event(history.Confirmation)
	e.Container, e.Held = c.Name, clone(c.Devices)
	return e
}

// ask puts a question to the plugins.
func (k *Kubelet) ask(p *Pod, c *Container, q Question, plugins Plugins) []string {
	e := p.of(history.Question, c, q.Resource, nil)
	e.Offer = &history.Offer{
		Available: q.Available, MustInclude: q.MustInclude, Size: q.Size,
	}
	k.Open = k.History.Call(e)
	var ids []string
	k.unlocked(func() { ids = plugins.Prefer(p, c, q) })
	k.History.Return(k.Open, func(e *history.Event) { e.Devices = slices.Clone(ids) })
	return ids
}

// unlocked calls a plugin, during whose answer the kubelet answers others.
func (k *Kubelet) unlocked(call func()) {
	k.mu.Unlock()
	defer k.mu.Lock()
	call()
}

// released records the release of each ended pod that holds no devices.
func (k *Kubelet) released() {
	holding := map[string]bool{}
	for of := range k.held {
		holding[of.uid] = true
	}
	k.ending = slices.DeleteFunc(k.ending, func(p *Pod) bool {
		if !holding[p.UID] {
			k.History.Return(p.release, nil)
		}
		return !holding[p.UID]
	})
}
