// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/test/best"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/node"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/rig"
	"github.com/tandem-k8s/tandem/topology"
)

// trials are the placements of pods with the same request, by the resource of the kubelet's first call.
type trials struct{ first map[string][]rig.Placement }

func newTrials() trials { return trials{map[string][]rig.Placement{}} }

// try admits one pod on the empty node, and removes it.
func (t trials) try(ctx context.Context, r *rig.Rig, size, number int) error {
	name := fmt.Sprintf("pod-%d-%d", size, number)
	pod := node.Pod(name, nil, []v1.Container{node.Container("app", limits(r, size))})
	placed, err := r.Admit(ctx, pod)
	if err = errors.Join(err, r.Remove(pod)); err != nil {
		return err
	}
	asked := placed[0].Asked[0]
	t.first[asked] = append(t.first[asked], placed[0])
	return nil
}

// orders returns the number of orders of the kubelet's calls.
func (t trials) orders() int { return len(t.first) }

// all returns every placement.
func (t trials) all() []rig.Placement { return slices.Concat(slices.Collect(maps.Values(t.first))...) }

func (t trials) pods() int { return len(t.all()) }

// worse counts the pods that could have had better pairs.
func (t trials) worse() int {
	n := 0
	for _, placed := range t.all() {
		if placed.Pairs != placed.Best {
			n++
		}
	}
	return n
}

// pairs returns the sum of the pairs of all pods, and of the best possible ones.
func (t trials) pairs() (got, most best.Pairs) {
	for _, placed := range t.all() {
		got, most = got.Add(placed.Pairs), most.Add(placed.Best)
	}
	return got, most
}

// cards returns the mean number of cards of a pod's GPUs or partitions.
func (t trials) cards() float64 {
	cards := 0
	for _, placed := range t.all() {
		different := map[topology.Address]bool{}
		for _, gpu := range placed.GPUs {
			different[gpu.Address] = true
		}
		cards += len(different)
	}
	return float64(cards) / float64(t.pods())
}
