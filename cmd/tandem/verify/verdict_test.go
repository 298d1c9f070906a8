// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/topology"
)

func TestReasons(t *testing.T) {
	best := TrafficPair{Facts: Facts{RateGbps: 400}}
	for _, test := range []struct {
		name  string
		facts Facts
		want  []string
	}{
		{"none known", Facts{Pair: machine.Pair{Distance: topology.PIX}}, nil},
		{"all is well", Facts{Pair: machine.Pair{GPU: "x", Distance: topology.C2C},
			PCIe:     topology.PCIeLink{Speed: 32, MaxSpeed: 32, Width: 16, MaxWidth: 16},
			GPULanes: 16, GPUMax: 16, State: "4: ACTIVE", RateGbps: 400}, nil},
		{"far", Facts{Pair: machine.Pair{GPU: "x", Distance: topology.NODE}},
			[]string{"GPU and VF are NODE apart"}},
		{"redirect", Facts{Pair: machine.Pair{GPU: "x"}, Redirects: []string{"0000:09:00.0"}},
			[]string{"ACS redirect at 0000:09:00.0"}},
		{"links", Facts{PCIe: topology.PCIeLink{Speed: 16, MaxSpeed: 32, Width: 4, MaxWidth: 16},
			GPULanes: 8, GPUMax: 16},
			[]string{"PCIe width 4 of 16", "PCIe 16 of 32 GT/s", "the GPU's PCIe width 8 of 16"}},
		{"port", Facts{State: "1: DOWN", RateGbps: 100},
			[]string{"port 1: DOWN", "port rate 100 Gb/s, the best pair's 400"}},
	} {
		if diff := cmp.Diff(test.want, test.facts.listReasons(best)); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
	}
}

func TestThresholds(t *testing.T) {
	for _, test := range []struct {
		gbps, of float64
		least    int
		want     bool
	}{
		{80, 100, 80, false}, {79.9, 100, 80, true}, {0, 100, 0, false}, {0, 100, 1, true}, {5, 0, 100, false},
		{100, 100, 100, false},
	} {
		if got := isBelow(test.gbps, test.of, test.least); got != test.want {
			t.Errorf("below(%v, %v, %d) = %v", test.gbps, test.of, test.least, got)
		}
	}
}
