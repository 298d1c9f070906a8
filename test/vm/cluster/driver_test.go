// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"slices"
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
		pod := Pod{Name: "p", Asks: []Ask{{GPUs: 4, VFs: 4, Way: way}}}.manifest("amd.com/gpu", VFResource)
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
