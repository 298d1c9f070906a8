// SPDX-License-Identifier: Apache-2.0

package models_test

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/test/known"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/node"
)

// TestSmallestCases: the smallest nodes and pods on which a model of the product is not the kubelet. Whoever
// mends a fault removes its mark here and its condition in knownFault.
func TestSmallestCases(t *testing.T) {
	const times = 20 // the kubelet picks at random
	for _, row := range []struct {
		name     string
		layout   layout
		init     map[string]int // requests of an init container; nil for none
		requests map[string]int
		answer   []string // of the plugins
		why      string   // the fault is known
		breach   string
	}{{
		name: "a short answer without affinity",
		layout: layout{
			policy: "none", numbers: []int{0}, devices: map[string][]int{gpus: {0, none, none, none, none, none}},
		},
		requests: map[string]int{gpus: 1},
		why: "under policy none the kubelet fills up an answer with any device; package devicemanager prefers " +
			"devices with a NUMA node",
		breach: `devicemanager on .*policy:none(.|\n)*\+.*"0001:01:00.0"`,
	}, {
		name: "none of devices on unknown nodes",
		layout: layout{
			policy: "restricted", numbers: []int{0}, devices: map[string][]int{gpus: {1}},
		},
		requests: map[string]int{gpus: 0},
		why: "for a resource whose NUMA nodes the kubelet does not know, it tries the nodes of the machine; " +
			"package hints tries none, and rejects a request for 0 devices",
		breach: `devicemanager on (.|\n)*admits the pod: false; the kubelet: <nil>`,
	}, {
		name: "a reused device on an unknown node",
		layout: layout{
			policy: "single-numa-node", numbers: []int{0}, devices: map[string][]int{gpus: {0, 1}},
		},
		init: map[string]int{gpus: 1}, requests: map[string]int{gpus: 1}, answer: []string{"0002:01:01.0"},
		why: "the kubelet has no hint if an init container has left a device whose NUMA node it does not know; " +
			"package hints ignores the device",
		breach: `devicemanager on (.|\n)*admits the pod: true; the kubelet: .*TopologyAffinityError`,
	}} {
		t.Run(row.name, func(t *testing.T) {
			if row.why != "" {
				known.Fault(t, row.why, row.breach)
			}
			row.layout.scope, row.layout.most = "container", 8
			row.layout.distances = randomDistances(nil, len(row.layout.numbers))
			w, err := row.layout.build()
			if err != nil {
				t.Fatal(err)
			}
			c := newComparison(t, w, nil)
			defer c.real.stop()
			c.strict = true
			for range times {
				pod := node.Pod("pod", nil, []v1.Container{node.Container("app", row.requests)})
				if row.init != nil {
					pod.Spec.InitContainers = []v1.Container{node.Container("init", row.init)}
				}
				c.compare(pod, func(*allocation) []string { return row.answer })
				for _, pod := range slices.Clone(c.real.admitted) {
					c.remove(pod)
				}
			}
		})
	}
}

// knownFault returns the known fault of the product's models that an admission may show; "" for none.
func (c *comparison) knownFault(pod *v1.Pod) string {
	for i, o := range containersOf(pod) {
		for name, count := range requestsOf(&o) {
			without, known, inside := c.places(name)
			a := c.real.containers[i].of(name)
			switch {
			case count == 0 && known > 0 && inside == 0:
				return elsewhere
			case len(pod.Spec.InitContainers) > 0 && known > inside:
				return leftElsewhere
			case a != nil && len(a.answer) < a.Size && len(c.real.containers[i].Nodes) == 0 && without*known > 0:
				return partlyPlaced
			}
		}
	}
	return ""
}

// places counts the devices of a resource without a NUMA node, with one, and with one of the machine.
func (c *comparison) places(resource string) (without, known, inside int) {
	for _, r := range c.real.world.resources {
		for _, d := range r.Devices {
			switch number, has := d.NUMA.Number(); {
			case r.Name != resource:
			case !has:
				without++
			default:
				known++
				is := func(n node.NUMA) bool { return n.ID == number }
				if slices.ContainsFunc(c.real.world.numa, is) {
					inside++
				}
			}
		}
	}
	return without, known, inside
}
