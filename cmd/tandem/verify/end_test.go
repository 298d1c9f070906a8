// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

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

// TestEndsOfMachines reads VFs of recorded machines: over RoCE without a GID, and over InfiniBand.
func TestEndsOfMachines(t *testing.T) {
	for _, test := range []struct {
		machine, vf, gpu string
		want             End
	}{
		{"oci-mi300x-derived", "0000:0c:00.1", "0000:11:00.0", End{Facts: Facts{RDMA: "mlx5_8",
			Distance: topology.PIX, State: "4: ACTIVE", Rate: "400 Gb/sec (4X NDR)", RateGbps: 400},
			Err: "mlx5_8 has no RoCE v2 GID of the VF's netdev: give the netdev an IP address"}},
		{"nv-h800-8x8", "0000:0e:00.1", "0000:34:00.0", End{Facts: Facts{RDMA: "mlx5_10",
			Distance: topology.NODE, PCIe: topology.PCIeLink{Speed: 32, Width: 16}, GPULanes: 16, State: "4: ACTIVE",
			Rate: "400 Gb/sec (4X NDR)", RateGbps: 400}}},
	} {
		m, err := machines.Load(test.machine, 1)
		if err != nil {
			t.Fatal(err)
		}
		sys := m.FS()
		tree, err := topology.Read(sys)
		if err != nil {
			t.Fatal(err)
		}
		gpu := &runtimeGPU{Address: address(t, test.gpu)}
		got := newEnd(sys, tree, address(t, test.vf), test.gpu, gpu)
		test.want.GPU, test.want.Facts.GPU, test.want.VF, test.want.GID = gpu, test.gpu, test.vf, -1
		test.want.Redirects = []string{}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: %s", test.machine, diff)
		}
	}
}

func TestChooseGID(t *testing.T) {
	const dir = "ports/1"
	sys := fstest.MapFS{}
	add := func(index, address, kind, netdev string) {
		for file, content := range map[string]string{
			"gids/": address, "gid_attrs/types/": kind, "gid_attrs/ndevs/": netdev,
		} {
			sys[dir+"/"+file+index] = &fstest.MapFile{Data: []byte(content + "\n")}
		}
	}
	expect := func(index int, ok bool) {
		t.Helper()
		gids, err := readGIDs(sys, dir)
		if err != nil {
			t.Error(err)
		}
		if got, found := chooseGID(gids, []string{"net1"}); got != index || found != ok {
			t.Errorf("index %d, %v; want %d, %v", got, found, index, ok)
		}
	}
	expect(0, false)
	add("0", "fe80:0000:0000:0000:f427:13ff:fe5b:6e40", "IB/RoCE v1", "net1")
	add("9", "0000:0000:0000:0000:0000:0000:0000:0000", "RoCE v2", "net1")
	expect(0, false)
	add("10", "fe80:0000:0000:0000:f427:13ff:fe5b:6e40", "RoCE v2", "net1")
	expect(10, true)
	add("4", "0000:0000:0000:0000:0000:ffff:0a00:0001", "RoCE v2", "another")
	expect(10, true)
	add("11", "2001:0db8:0000:0000:0000:0000:0000:0001", "RoCE v2", "net1")
	expect(11, true)
	add("12", "0000:0000:0000:0000:0000:ffff:0a00:0001", "RoCE v2", "net1")
	add("13", "0000:0000:0000:0000:0000:ffff:0a00:0002", "RoCE v2", "net1")
	expect(12, true)
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
