// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/topology"
)

// write writes the checkpoint.
func (k *Kubelet) write() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.writeLocked()
}

func (k *Kubelet) writeLocked() error {
	var allocations []kubelet.Allocation
	for _, p := range slices.Concat(k.pods, k.ended) {
		for _, r := range p.Requests {
			response, err := proto.Marshal(p.responses[r.Resource])
			if err != nil {
				return fmt.Errorf("encode the answer for pod %s: %w", p.Name, err)
			}
			if ids := p.devices[r.Resource]; len(ids) > 0 {
				allocations = append(allocations, kubelet.Allocation{
					PodUID: p.uid, Container: Container, Resource: r.Resource, Devices: k.byNode(r.Resource, ids),
					Response: response,
				})
			}
		}
	}
	registered := map[string][]string{}
	for name := range k.resources {
		registered[name] = k.healthy(name)
	}
	return kubelet.WriteCheckpoint(k.dir, allocations, registered)
}

// byNode returns devices by their NUMA node, for the checkpoint.
func (k *Kubelet) byNode(name string, ids []string) map[string][]string {
	nodes := map[string]string{}
	if of := k.resources[name]; of != nil {
		for _, d := range of.devices {
			nodes[d.GetID()] = numaNode(d).String()
		}
	}
	by := map[string][]string{}
	for _, id := range ids {
		node, known := nodes[id]
		if !known {
			node = topology.NUMANode{}.String()
		}
		by[node] = append(by[node], id)
	}
	return by
}
