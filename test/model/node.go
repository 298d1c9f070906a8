// SPDX-License-Identifier: Apache-2.0

package model

import (
	"math/rand/v2"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// Update replaces the healthy devices of a resource by a list of the resource's plugin, and writes the
// checkpoint, as the kubelet does for each list.
func (k *Kubelet) Update(resource string, healthy []device.Device) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.registered[resource] = nil
	for _, d := range healthy {
		k.registered[resource] = append(k.registered[resource], d.ID)
	}
	k.Devices[resource] = healthy
	return k.write()
}

// Wipe restarts the kubelet without its checkpoint, as after a node was drained: all pods have ended.
func (k *Kubelet) Wipe() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.Pods() {
		k.end(p)
	}
	k.pods, k.ready, k.lives = nil, true, k.lives+1
	clear(k.held)
	return k.write()
}

// Roll makes all later choices of the kubelet depend on a number alone, and not on the choices before.
func (k *Kubelet) Roll(dice uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.random = rand.New(rand.NewPCG(dice, 7))
}

// Run starts an admitted pod.
func (k *Kubelet) Run(p *Pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	p.started = true
}

// Started reports whether a pod has started.
func (p *Pod) Started() bool { return p.started }

// Living reports whether a pod has not ended.
func (p *Pod) Living() bool { return !p.ended }

// Held returns the devices of a container by the kubelet's records.
func (k *Kubelet) Held(p *Pod, c *Container) kubelet.Devices { return k.held[holder{p.UID, c.Name}] }
