// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestClaimsOf(t *testing.T) {
	t.Parallel()
	got := claimsOf("nvidia.yaml\ntandem.dev-claim_8a2c.json\ntandem.dev-claim_17.json\n.tandem.dev-claim_9\n")
	if !slices.Equal(got, []string{"8a2c", "17"}) {
		t.Errorf("%q", got)
	}
}

func TestOwnersOf(t *testing.T) {
	t.Parallel()
	got := ownersOf(holdings{
		"amd.com/gpu 0000:11:00.0":        "team/train-0/claim train-0-pairs",
		"tandem.dev/rdma_vf 0000:0c:00.1": "team/train-1/by a device plugin",
	})
	if !slices.Equal(got, []string{"train-0-pairs"}) {
		t.Errorf("%q", got)
	}
}

func TestDiffer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		want, got []string
		differ    bool
	}{
		{nil, nil, false},
		{[]string{"a", "b"}, []string{"b", "a", "b"}, false}, // a claim with two devices
		{[]string{"a"}, nil, true},
		{nil, []string{"left behind"}, true},
		{[]string{"a"}, []string{"b"}, true},
	} {
		if err := differ("claims", c.want, c.got); (err != nil) != c.differ {
			t.Errorf("%q and %q: %v", c.want, c.got, err)
		}
	}
}

// Every way to ask for pairs is another manifest.
func TestWays(t *testing.T) {
	t.Parallel()
	for way, want := range map[Way][]string{
		ByResources: {"amd.com/gpu", VFResource}, ByPair: {pairResource}, ByTemplate: nil,
	} {
		pod := Pod{Name: "p", Asks: []Ask{{GPUs: 4, VFs: 4, Way: way}}}.manifest("amd.com/gpu")
		resources := pod.Spec.Containers[0].Resources
		var names []string
		for name, count := range resources.Limits {
			names = append(names, string(name))
			if count.Value() != 4 {
				t.Errorf("%v: %d of %s", way, count.Value(), name)
			}
		}
		if slices.Sort(names); !slices.Equal(names, want) {
			t.Errorf("%v: limits are %q, want %q", way, names, want)
		}
		if byClaim := way == ByTemplate; (len(resources.Claims) == 1) != byClaim ||
			byClaim && *pod.Spec.ResourceClaims[0].ResourceClaimTemplateName != "tandem-pairs-4" {
			t.Errorf("%v: claims are %v of %v", way, resources.Claims, pod.Spec.ResourceClaims)
		}
	}
}

// at is where a device of this machine is: below a switch of a socket, at a depth of its own.
func at(socket, port, device string) string {
	return "/sys/devices/pci0000:" + socket + "/0000:" + socket + ":" + port + "/0000:" + socket + "/0000:" +
		device
}

func TestPairs(t *testing.T) {
	for _, c := range []struct {
		name      string
		gpus, vfs []string
		want      int
	}{
		{"one switch", []string{at("20", "00.0", "28:00.0")}, []string{at("20", "00.0", "25:10.0")}, 1},
		{"two root ports of a socket", []string{at("20", "00.0", "28:00.0")},
			[]string{at("20", "01.0", "2d:10.0")}, 0},
		{"two sockets", []string{at("20", "00.0", "28:00.0")}, []string{at("80", "00.0", "85:10.0")}, 0},
		{"two VFs of one NIC are one pair", []string{at("20", "00.0", "28:00.0"), at("20", "01.0", "30:00.0")},
			[]string{at("20", "00.0", "25:10.0"), at("20", "00.0", "25:10.2")}, 1},
		{"in another order", []string{at("20", "00.0", "28:00.0"), at("20", "01.0", "30:00.0")},
			[]string{at("20", "01.0", "2d:10.0"), at("20", "00.0", "25:10.0")}, 2},
		{"no VF", []string{at("20", "00.0", "28:00.0")}, nil, 0},
	} {
		if got := (&View{GPUs: c.gpus, VFs: c.vfs}).Pairs(); got != c.want {
			t.Errorf("%s: %d pairs, want %d", c.name, got, c.want)
		}
	}
}

func TestReadLook(t *testing.T) {
	var v View
	for line := range strings.Lines(
		`gpu renderD128 /sys/devices/pci0000:20/0000:20:00.0/0000:21:00.0/0000:28:00.0
vf 0000:25:10.0 /sys/devices/pci0000:20/0000:20:00.0/0000:21:00.0/0000:25:10.0
GPU           VF            DISTANCE

verified: 1 GPU, 1 VF, pairs in the order of the lists, pairs.json agrees
verify 0
`) {
		if last := v.read(strings.TrimSuffix(line, "\n")); last != strings.HasPrefix(line, "verify ") {
			t.Errorf("%q: last is %v", line, last)
		}
	}
	want := View{GPUs: []string{"/sys/devices/pci0000:20/0000:20:00.0/0000:21:00.0/0000:28:00.0"},
		VFs:      []string{"/sys/devices/pci0000:20/0000:20:00.0/0000:21:00.0/0000:25:10.0"},
		Verified: true, Verdict: "verified: 1 GPU, 1 VF, pairs in the order of the lists, pairs.json agrees"}
	if fmt.Sprint(v) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", v, want)
	}
}

func TestSources(t *testing.T) {
	got := sources(`level=INFO msg=preferred reason="a/b/c wants 1 amd.com/gpu; kubelet asked first for GPUs; told by kubelet; 1 pair"
level=INFO msg=preferred reason="a/b/c wants 1 amd.com/gpu; told by pods-api"
level=INFO msg=preferred reason="a/b/c wants 1 amd.com/gpu; told by kubelet; 1 pair"
level=INFO msg=preferred reason="free devices near each other"
`)
	if want := map[string]int{"kubelet": 2, "pods-api": 1, "": 1}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
