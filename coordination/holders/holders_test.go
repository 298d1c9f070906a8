// SPDX-License-Identifier: Apache-2.0

package holders_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// Parts of sources.
const (
	two   = "recorded u1/c g1 v1, u2/c g2"
	one   = "recorded u1/c g1"
	inits = "recorded u1/init g1 g2, u1/c g1 v1"
)

func TestFind(t *testing.T) {
	t.Parallel()
	testSearches(t, map[string][]search{
		// Which pods live, and their names.
		"the list of pods says whose pod lives":   {{two + "; all pods u2=b", "u2 b/c g2"}},
		"pods beside a list that is not all live": {{two + "; some pods u2=b", "u1 ?/c g1 v1, u2 b/c g2"}},
		"a list that is not all names a pod that List shows without devices": {
			{two + "; list a/c, b/c g2; some pods u1=a, u2=b", "u2 b/c g2"}, // the kubelet admits it again
		},
		"a pod that runs keeps what a kubelet without its records does not show": {
			{two + "; list a/c, b/c g2; some pods u1=a started, u2=b started", "u1 a/c g1 v1, u2 b/c g2"},
		},
		"without a list pods are found by what they have": {
			{two + "; list b/c g2, d/c", "u1 ?/c g1 v1, u2 b/c g2"},
		},
		"what is left of an init container stays with its pod": {
			{inits + "; list a/c g1 v1", "u1 a/c g1 v1, u1 a/init g1 g2"},
		},
		"the pod of one record is not that of another": {
			{"recorded; list a/c g1", "? a/c g1 open"},
			{"recorded u1/c g2, u2/c g1; some pods u1=a", "u1 a/c g2, u2 ?/c g1"},
		},

		// Pods of one name.
		"of two pods of a name none is known to be the one that List shows": {
			{"recorded; list a/c g1; some pods u1=a, u2=a", "? a/c g1 open"},
		},
		"but an Allocate says whose container List shows": {
			{"recorded; list a/c g1; some pods u1=a, u2=a; allocated u2 a/c v1", "u2 a/c g1 v1 open; left v1"},
		},
		"of two recorded pods of a name the later one is shown": {
			{two + "; some pods u1=a, u2=a", "u1 a/c g1 v1, u2 a/c g2"},
			{two + "; list a/c g2; asks v; withheld v1", "u1 a/c g1 v1, u2 a/c g2"},
		},
		"or the earlier one, in the order of the UIDs": {
			{two + "; some pods u1=a, u2=a", "u1 a/c g1 v1, u2 a/c g2"},
			{two + "; list a/c g1 v1; asks g; withheld g2", "u1 a/c g1 v1, u2 a/c g2"},
		},
		"an Allocate of a later pod of the name is not the earlier pod's": {
			{two + "; some pods u1=a", "u1 a/c g1 v1, u2 ?/c g2"},
			{
				two + "; list a/c, b/c g2; allocated ? ?/? g3; asks v; withheld v1",
				"? ?/? g3 open, u1 a/c g1 v1, u2 b/c g2; left g3",
			},
		},
		"nor what List shows of the later pod": {
			{two + "; some pods u1=a", "u1 a/c g1 v1, u2 ?/c g2"},
			{two + "; list a/c g3, b/c g2; asks v; withheld v1", "? a/c g3 open, u1 a/c g1 v1, u2 b/c g2"},
		},
		"a kubelet that has just started keeps an ended pod beside a later one of the name": {
			{"recorded u1/c g1 v1; some pods u1=a", "u1 a/c g1 v1"},
			{
				"recorded u1/c g1 v1, u3/c g3; list a/c g3, b/c; asks v: v2; withheld v1",
				"u1 a/c g1 v1, u3 a/c g3",
			},
			{
				"recorded u1/c g1 v1, u3/c g3; list a/c g3, b/c; some pods u3=a; asks v: v2; withheld v1",
				"u1 a/c g1 v1, u3 a/c g3",
			},
		},
		"whichever UID is the lower one": {
			{"recorded u3/c g1 v1; some pods u3=a", "u3 a/c g1 v1"},
			{
				"recorded u3/c g1 v1, u1/c g3; list a/c g3, b/c; asks v: v2; withheld v1",
				"u1 a/c g3, u3 a/c g1 v1",
			},
			{
				"recorded u3/c g1 v1, u1/c g3; list a/c g3, b/c; some pods u1=a; asks v: v2; withheld v1",
				"u1 a/c g3, u3 a/c g1 v1",
			},
		},
		"a later pod of the name, shown in admission under the UID of the living one, is rejected": {
			{
				"life k; recorded u1/c g1; list a/c g1, a/side g8; all pods u1=a started",
				"u1 a/c g1, u1 a/side g8 open",
			},
			{"life k; recorded u1/c g1; list a/c g1, a/side; all pods u1=a started", "u1 a/c g1"},
		},

		// The kubelet's offer.
		"a device that is offered frees its whole pod": {{two + "; asks v: v1", "u2 ?/c g2"}},
		"also the pod's other containers":              {{inits + "; asks v: v1", ""}},
		"one that has to be taken frees nobody": {
			{inits + "; asks g: g2 g3; must g2", "u1 ?/c g1 v1, u1 ?/init g1 g2"},
		},
		"nor one that List shows": {
			{two + "; list a/c g1 v1; asks v: v1", "u1 a/c g1 v1, u2 ?/c g2"},
		},
		"nor one that List shows with another container": {
			{one + "; list d/x g1; asks g: g1", "? d/x g1 open, u1 ?/c g1"},
		},
		"the same ID of another resource frees nobody": {{one + "; asks v: g1", "u1 ?/c g1"}},
		"an offered device of a pod that List shows with another device frees nobody": {
			{"recorded u1/c g1, u1/init g2 g3; list a/c g1; asks g: g2", "u1 a/c g1, u1 a/init g2 g3"},
		},
		"a pod with a withheld device is alive for the kubelet": {
			{two + "; all pods u2=b; asks g: g3; withheld g1", "u1 ?/c g1 v1, u2 b/c g2"},
		},
		"a withheld device that a later pod was given tells nothing of the pod before": {
			{"recorded u1/c g1 g2; allocated u3 ?/? g1 anew; asks g: g2; withheld g1", ""},
		},

		// Other pods' devices.
		"a device that another pod has frees the one before": {
			{two + "; list next/c g1, b/c g2", "? next/c g1 open, u2 b/c g2"},
		},
		"a pod does not become its successor that was given the same": {
			{two + "; list next/c g2; allocated ? ?/? g2", "? next/c g2 open, u1 ?/c g1 v1"},
		},
		"an Allocate before the checkpoint does not end the pod": {
			{one + "; allocated u0 ?/? g1 anew earlier", "u1 ?/c g1"},
		},
		"nor an Allocate of the next container of the pod": {
			{inits + "; allocated u1 ?/d g2", "u1 ?/c g1 v1, u1 ?/d g2 open, u1 ?/init g1 g2; left g2"},
		},

		// Containers in admission.
		"a container that List shows and the checkpoint does not is in admission": {
			{
				two + "; list a/c g1 v1, b/c g2, new/c g3; all pods u1=a, u2=b, u3=new",
				"u1 a/c g1 v1, u2 b/c g2, u3 new/c g3 open",
			},
		},
		"an Allocate that nothing tells of yet": {
			{two + "; all pods u2=b, u3=n; allocated u3 ?/init g3; asks v", "u2 b/c g2, u3 ?/init g3 open; left g3"},
		},
		"is over when its pod has ended": {{two + "; all pods u2=b; allocated u3 ?/init g3", "u2 b/c g2"}},
		"when the checkpoint has been written since": {
			{two + "; allocated ? ?/? g3 earlier", "u1 ?/c g1 v1, u2 ?/c g2"},
		},
		"when its resource is asked for again": {
			{two + "; allocated ? ?/? g3; asks g", "u1 ?/c g1 v1, u2 ?/c g2"},
		},
		"when List shows it": {
			{two + "; list new/c g3; allocated ? ?/? g3", "? new/c g3 open, u1 ?/c g1 v1, u2 ?/c g2"},
		},

		// Without the checkpoint.
		"a holder of the last search is no longer in admission": {
			{"recorded; allocated u1 ?/c g1", "u1 ?/c g1 open; left g1"},
			{"asks g", "u1 ?/c g1"},
		},
		"without the checkpoint there are List and Allocates": {
			{"list a/c g1; allocated ? ?/? v1, ? ?/? g1", "? a/c g1 v1 open; left v1"},
		},
	})
}

// A request source corrects the name of a pod that an earlier search has inferred, with all that was known by
// the wrong name.
func TestWrongNameIsCorrected(t *testing.T) {
	t.Parallel()
	sources := parse(t, "recorded u1/c g1; all pods u1=a")
	sources.Known = map[string]holders.Known{
		"u1": {Pod: kubelet.Pod{Name: "wrong"}, Listed: true, Life: "1", Containers: []string{"other"}},
	}
	want := holders.Known{Pod: kubelet.Pod{Name: "a"}, Told: true}
	if diff := cmp.Diff(want, holders.Find(sources).Known["u1"], cmp.AllowUnexported(want)); diff != "" {
		t.Errorf("known (-want +got):\n%s", diff)
	}
}

// Holders without a UID have no name in common: a pod that List shows with the devices of one is not that of
// the others.
func TestNamelessHoldersStayApart(t *testing.T) {
	t.Parallel()
	sources := parse(t, "list a/c g1")
	sources.Before = holders.Holders{{Name: "c", Devices: devices("g1")}, {Name: "c", Devices: devices("v1")}}
	if found := describe(holders.Find(sources)); found != "? ?/c v1, ? a/c g1 open" {
		t.Errorf("found %s", found)
	}
}

// BenchmarkFind is a question on a node of 100 pods with a GPU and a VF each.
func BenchmarkFind(b *testing.B) {
	var recorded, listed, named []string
	for i := range 100 {
		recorded = append(recorded, fmt.Sprintf("u%d/c g%d v%d", i, i, i))
		listed = append(listed, fmt.Sprintf("p%d/c g%d v%d", i, i, i))
		named = append(named, fmt.Sprintf("u%d=p%d", i, i))
	}
	list := func(items []string) string { return strings.Join(items, ", ") }
	names := "recorded " + list(recorded) + "; list " + list(listed) + "; asks g"
	for name, sources := range map[string]string{"names": names, "UIDs": names + "; all pods " + list(named)} {
		s := parse(b, sources)
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				holders.Find(s)
			}
		})
	}
}
