package coordination

import (
	"slices"
	"testing"

	"github.com/tandem-k8s/tandem/topology"
)

// on lists count devices on each of the given NUMA nodes.
func on(count int, nodes ...int) []topology.NUMANode {
	var devices []topology.NUMANode
	for _, n := range nodes {
		for range count {
			devices = append(devices, topology.Node(n))
		}
	}
	return devices
}

func TestPredictNodes(t *testing.T) {
	t.Parallel()
	eight, thirtyTwo := on(4, 0, 1), on(16, 0, 1)
	for name, tc := range map[string]struct {
		demands []Demand
		want    []int
		refused bool
	}{
		"nothing asked":                            {},
		"no node known":                            {demands: []Demand{{Count: 4, All: on(8, -1), Free: on(8, -1)}}},
		"the lowest node wins a tie":               {demands: []Demand{{4, eight, eight}}, want: []int{0}},
		"a full node is passed over":               {demands: []Demand{{4, eight, on(4, 1)}}, want: []int{1}},
		"more than a node holds takes both":        {demands: []Demand{{5, eight, eight}}, want: []int{0, 1}},
		"8+8 with one VF per PF":                   {demands: []Demand{{8, eight, eight}, {8, eight, eight}}, want: []int{0, 1}},
		"8+8 with four VFs per PF is refused":      {demands: []Demand{{8, eight, eight}, {8, thirtyTwo, thirtyTwo}}, refused: true},
		"8+8 with VFs that tell no node":           {demands: []Demand{{8, eight, eight}, {8, on(32, -1), on(32, -1)}}, want: []int{0, 1}},
		"2+2 with one free on each node refused":   {demands: []Demand{{2, eight, on(1, 0, 1)}, {2, eight, eight}}, refused: true},
		"both kinds have to fit on one node":       {demands: []Demand{{4, eight, on(4, 0)}, {4, eight, on(4, 1)}}, refused: true},
		"more nodes than the kubelet allows":       {demands: []Demand{{1, on(1, 0, 1, 2, 3, 4, 5, 6, 7, 8), nil}}, refused: true},
		"node numbers may have holes":              {demands: []Demand{{2, on(2, 0, 8), on(2, 8)}}, want: []int{8}},
		"more than there is":                       {demands: []Demand{{9, eight, eight}}, refused: true},
		"a resource of which nothing is asked":     {demands: []Demand{{4, eight, eight}, {0, eight, nil}}, want: []int{0}},
		"three nodes, two needed, the lowest pair": {demands: []Demand{{4, on(2, 0, 1, 2), on(2, 1, 2)}}, want: []int{1, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, ok := PredictNodes(tc.demands)
			if ok == tc.refused || !slices.Equal(got, tc.want) {
				t.Errorf("got %v, %v; want %v, %v", got, ok, tc.want, !tc.refused)
			}
		})
	}
}
