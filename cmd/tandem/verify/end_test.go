// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
)

func address(t *testing.T, text string) topology.Address {
	t.Helper()
	a, err := topology.ParseAddress(text)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestEndsOfMachines reads VFs of recorded machines: over RoCE and over InfiniBand.
func TestEndsOfMachines(t *testing.T) {
	for _, test := range []struct {
		machine, vf, gpu string
		want             trafficEnd
	}{
		{"oci-mi300x-derived", "0000:0c:00.1", "0000:11:00.0", trafficEnd{Facts: Facts{RDMA: "mlx5_8",
			Pair:  machine.Pair{Distance: topology.PIX, Bridges: new(1)},
			State: "4: ACTIVE", Rate: "400 Gb/sec (4X NDR)", RateGbps: 400}}},
		{"nv-h800-8x8", "0000:0e:00.1", "0000:34:00.0", trafficEnd{Facts: Facts{RDMA: "mlx5_10",
			Pair: machine.Pair{Distance: topology.NODE, Bridges: new(4)},
			PCIe: topology.PCIeLink{Speed: 32, Width: 16}, GPULanes: 16, State: "4: ACTIVE",
			Rate: "400 Gb/sec (4X NDR)", RateGbps: 400}}},
	} {
		sys := machines.Sys(t, test.machine, 1)
		tree, err := topology.Read(sys)
		if err != nil {
			t.Fatal(err)
		}
		gpu := &GPU{ID: test.gpu, Address: address(t, test.gpu)}
		got := newEnd(sys, tree, address(t, test.vf), gpu)
		test.want.GPU, test.want.Facts.GPU, test.want.VF = gpu, test.gpu, test.vf
		test.want.Redirects = []string{}
		if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(GPU{})); diff != "" {
			t.Errorf("%s: %s", test.machine, diff)
		}
	}
}

func TestParseRate(t *testing.T) {
	for text, want := range map[string]float64{
		"200 Gb/sec (4X HDR)": 200, "2.5 Gb/sec (1X SDR)": 2.5, "": 0, "400": 0, "-1 Gb/sec": 0, "NaN Gb/sec": 0,
	} {
		if got := parseRate(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}
