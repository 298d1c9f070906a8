// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
)

func ready(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func address(t *testing.T, text string) topology.Address {
	t.Helper()
	a, err := topology.ParseAddress(text)
	ready(t, err)
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
		sys, tree := machines.Read(t, test.machine, 1)
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

func recorded(t testing.TB, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata", name))
	ready(t, err)
	return string(content)
}

// TestRecordedOutput reads the output of perftest 4.5 on software RDMA devices (rdma_rxe).
func TestRecordedOutput(t *testing.T) {
	for _, file := range []string{"write_bw-client.txt", "write_bw-server.txt"} {
		gbps, bytes, err := parseBandwidth(recorded(t, file))
		if err != nil || gbps != 0.26 || bytes != 64<<20 {
			t.Errorf("%s: %v, %d, %v", file, gbps, bytes, err)
		}
	}
	if got, err := parseLatency(recorded(t, "read_lat-client.txt")); err != nil || got != 57.08 {
		t.Errorf("%v, %v", got, err)
	}
	if !notServed(recorded(t, "not-served.txt")) {
		t.Error("not the output of a client without server")
	}
	for file, want := range map[string]string{
		"no-device.txt":     "or belongs to another network namespace)",
		"not-connected.txt": "two addresses of one network namespace itself)",
	} {
		if got := failureReason(recorded(t, file)); !strings.HasSuffix(got, want) {
			t.Errorf("%s: %s", file, got)
		}
	}
}

func TestNoResult(t *testing.T) {
	const heading = " #bytes #iterations BW peak[Gb/sec] BW average[Gb/sec] MsgRate[Mpps]\n"
	for name, output := range map[string]string{
		"empty":            "",
		"heading alone":    heading,
		"text":             heading + " 1048576 many 0.00 1.00 0.1\n",
		"short":            heading + " 1048576 64 0.00 1.00\n",
		"infinite":         heading + " 1048576 64 0.00 inf 0.1\n",
		"negative":         heading + " 1048576 64 0.00 -1 0.1\n",
		"too large":        heading + " 1e18 1e18 0.00 1 0.1\n",
		"nothing arrived":  heading + " 1048576    0           0.000000            0.000000            0.000000\n",
		"MiB per second":   strings.ReplaceAll(heading, "Gb", "MiB") + " 1048576 64 0.00 1.00 0.1\n",
		"another's result": recorded(t, "read_lat-client.txt"),
	} {
		if got, _, err := parseBandwidth(output); err == nil {
			t.Errorf("%s: %v", name, got)
		}
	}
	if got, err := parseLatency(recorded(t, "write_bw-client.txt")); err == nil {
		t.Error(got)
	}
}

func FuzzOutput(f *testing.F) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) < 5 {
		f.Fatal(files, err)
	}
	for _, file := range files {
		f.Add(recorded(f, filepath.Base(file)))
	}
	f.Fuzz(func(t *testing.T, output string) {
		if gbps, bytes, err := parseBandwidth(output); err == nil && (!(gbps > 0) || bytes > 1<<63) {
			t.Errorf("bandwidth %v, %d", gbps, bytes)
		}
		if got, err := parseLatency(output); err == nil && !(got >= 0) {
			t.Errorf("latency %v", got)
		}
		if got := failureReason(output); len(got) > 1000 {
			t.Errorf("a reason of %d bytes", len(got))
		}
		_ = checkGPU(output, &GPU{})
	})
}
