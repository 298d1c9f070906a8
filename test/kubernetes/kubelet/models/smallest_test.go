// SPDX-License-Identifier: Apache-2.0

package models_test

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/node"
)

// TestSmallestCases: the smallest nodes and pods on which a model of the product was not the kubelet.
func TestSmallestCases(t *testing.T) {
	const times = 20 // the kubelet picks at random
	for _, row := range []struct {
		name     string
		layout   layout
		init     map[string]int // requests of an init container; nil for none
		requests map[string]int
		answer   []string // of the plugins
	}{{
		name: "a short answer without affinity",
		layout: layout{
			policy: "none", numbers: []int{0}, devices: map[string][]int{gpus: {0, none, none, none, none, none}},
		},
		requests: map[string]int{gpus: 1},
	}, {
		name: "none of devices on unknown nodes",
		layout: layout{
			policy: "restricted", numbers: []int{0}, devices: map[string][]int{gpus: {1}},
		},
		requests: map[string]int{gpus: 0},
	}, {
		name: "a reused device on an unknown node",
		layout: layout{
			policy: "single-numa-node", numbers: []int{0}, devices: map[string][]int{gpus: {0, 1}},
		},
		init: map[string]int{gpus: 1}, requests: map[string]int{gpus: 1}, answer: []string{"0002:01:01.0"},
	}} {
		t.Run(row.name, func(t *testing.T) {
			row.layout.scope, row.layout.most = "container", 8
			row.layout.distances = randomDistances(nil, len(row.layout.numbers))
			w, err := row.layout.build()
			if err != nil {
				t.Fatal(err)
			}
			c := newComparison(t, w, nil)
			defer c.real.stop()
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
