// SPDX-License-Identifier: Apache-2.0

package model

import (
	"maps"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// plugins are data of the plugins in the checkpoint, and its layout.
type plugins struct {
	responses  map[holder]map[string][]byte // answers to Allocate, by resource; nil for none
	registered map[string][]string          // healthy devices by resource, from Update
	layout     func([]byte) []byte          // of the checkpoint; nil for the kubelet's own
}

// Update replaces the healthy devices of a resource by a list of the resource's plugin, and writes the
// checkpoint, as the kubelet does for each list.
func (k *Kubelet) Update(resource string, healthy []device.Device) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	registered := maps.Clone(k.registered)
	if registered == nil {
		registered = map[string][]string{}
	}
	registered[resource] = nil
	for _, d := range healthy {
		registered[resource] = append(registered[resource], d.ID)
	}
	k.Devices[resource], k.registered = healthy, registered
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

// keepResponse keeps the answer to an Allocate for the checkpoint.
func (k *Kubelet) keepResponse(of holder, resource string, c *Container) {
	if len(c.Responses[resource]) == 0 {
		return
	}
	if k.responses == nil {
		k.responses = map[holder]map[string][]byte{}
	}
	if k.responses[of] == nil {
		k.responses[of] = map[string][]byte{}
	}
	k.responses[of][resource] = c.Responses[resource]
}

// Describe returns the pod in the form of a source of requests.
func (p *Pod) Describe() intent.Pod { return p.intent() }

// Living reports whether a pod has not ended.
func (p *Pod) Living() bool { return !p.ended }

// Held returns the devices of a container by the kubelet's records.
func (k *Kubelet) Held(p *Pod, c *Container) kubelet.Devices { return k.held[holder{p.UID, c.Name}] }
