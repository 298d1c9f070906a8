// SPDX-License-Identifier: Apache-2.0

package model

import (
	"slices"
	"testing"

	"github.com/tandem-k8s/tandem/topology"
)

// on lists count devices on each of the given NUMA nodes.
func on(count int, nodes ...int) PerNode {
	var devices PerNode
	for _, n := range nodes {
		for range count {
			devices.Add(topology.Node(n))
		}
	}
	return devices
}

// Policy none rejects no container, and gives no NUMA nodes.
func TestNone(t *testing.T) {
	t.Parallel()
	full := Demand{Count: 2, All: on(4, 0, 1), Free: on(1, 0, 1)}
	if nodes, admitted := PolicyNone.Nodes(full); nodes != 0 || !admitted {
		t.Errorf("policy none: nodes %b, admitted %v", nodes, admitted)
	}
}

func TestRestricted(t *testing.T) {
	t.Parallel()
	eight, thirtyTwo := on(4, 0, 1), on(16, 0, 1)
	for name, tc := range map[string]struct {
		demands []Demand
		want    []int
		refused bool
	}{
		"taken over from a node with no room": {
			demands: []Demand{{Count: 2, All: eight, Free: on(1, 0, 1), Reused: on(1, 1)}}, refused: true,
		},
		"taken over from the other node": {
			demands: []Demand{{Count: 2, All: eight, Free: on(4, 0, 1), Reused: on(1, 1)}}, want: []int{1},
		},
		"nothing asked": {},
		"no node known": {
			demands: []Demand{{Count: 4, All: on(8, -1), Free: on(8, -1)}},
		},
		"the lowest node wins a tie": {demands: []Demand{{Count: 4, All: eight, Free: eight}},
			want: []int{0}},
		"a full node is passed over": {demands: []Demand{{Count: 4, All: eight, Free: on(4, 1)}},
			want: []int{1}},
		"more than a node holds takes both": {demands: []Demand{{Count: 5, All: eight, Free: eight}},
			want: []int{0, 1}},
		"8+8 with one VF per PF": {
			demands: []Demand{{Count: 8, All: eight, Free: eight}, {Count: 8, All: eight, Free: eight}},
			want:    []int{0, 1},
		},
		"8+8 with four VFs per PF is refused": {
			demands: []Demand{{Count: 8, All: eight, Free: eight}, {Count: 8, All: thirtyTwo, Free: thirtyTwo}},
			refused: true,
		},
		"8+8 with VFs that tell no node": {
			demands: []Demand{{Count: 8, All: eight, Free: eight}, {Count: 8, All: on(32, -1), Free: on(32, -1)}},
			want:    []int{0, 1},
		},
		"2+2 with one free on each node refused": {
			demands: []Demand{{Count: 2, All: eight, Free: on(1, 0, 1)}, {Count: 2, All: eight, Free: eight}},
			refused: true,
		},
		"both kinds have to fit on one node": {
			demands: []Demand{{Count: 4, All: eight, Free: on(4, 0)}, {Count: 4, All: eight, Free: on(4, 1)}},
			refused: true,
		},
		"more nodes than the kubelet allows": {
			demands: []Demand{{Count: 1, All: on(1, 0, 1, 2, 3, 4, 5, 6, 7, 8), Free: nil}}, refused: true,
		},
		"as many nodes as the kubelet allows": {
			demands: []Demand{{Count: 1, All: on(1, 0, 1, 2, 3, 4, 5, 6, 7), Free: on(1, 7)}}, want: []int{7},
		},
		"node numbers may have holes": {
			demands: []Demand{{Count: 2, All: on(2, 0, 8), Free: on(2, 8)}}, want: []int{8},
		},
		"more than there is": {demands: []Demand{{Count: 9, All: eight, Free: eight}},
			refused: true},
		"a resource of which nothing is asked": {
			demands: []Demand{{Count: 4, All: eight, Free: eight}, {Count: 0, All: eight, Free: nil}}, want: []int{0},
		},
		"none of what has nodes is asked": {
			demands: []Demand{{Count: 4, All: on(8, -1), Free: on(8, -1)}, {Count: 0, All: eight, Free: eight}},
		},
		"three nodes, two needed, the lowest pair": {
			demands: []Demand{{Count: 4, All: on(2, 0, 1, 2), Free: on(2, 1, 2)}}, want: []int{1, 2},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, ok := Restricted.Nodes(tc.demands...)
			if ok == tc.refused || !slices.Equal(got.Numbers(), tc.want) {
				t.Errorf("got %v, %v; want %v, %v", got.Numbers(), ok, tc.want, !tc.refused)
			}
		})
	}
}
