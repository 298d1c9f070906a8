// SPDX-License-Identifier: Apache-2.0

package holders_test

import (
	"cmp"
	"hash/crc32"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/test/checkpoint"
)

const (
	gpus = "amd.com/gpu"
	vfs  = "nvidia.com/vf"
)

// search is one search: its sources, as parse reads them, and what it finds, as describe writes it.
type search struct{ sources, found string }

// testSearches makes the searches of each case one after the other: a search gets what the one before found.
func testSearches(t *testing.T, cases map[string][]search) {
	t.Helper()
	for name, searches := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var last holders.Result
			var listed holders.Sources // of the last List
			for _, s := range searches {
				sources := parse(t, s.sources)
				sources.Known, sources.Before, sources.Unlisted = last.Known, last.Holders, last.Unlisted
				sources.Allocates = slices.Concat(last.Allocates, sources.Allocates)
				sources.Looked, sources.ListedLife = listed.View.IsKnown(), listed.Life
				last = holders.Find(sources)
				if found := describe(last); found != s.found {
					t.Errorf("%s:\nfound %s\nwant  %s", s.sources, found, s.found)
				}
				if !reflect.DeepEqual(sources.View, parse(t, s.sources).View) { // it is the listing of the next search
					t.Errorf("%s: the search has changed List: %+v", s.sources, sources.View)
				}
				if sources.View.IsKnown() {
					listed = sources
				}
			}
		})
	}
}

// parse reads the sources of a search, in this order; "?" is unknown:
//
//	life second; recorded u1/c g1 v1, u2/c g2; list a/c g1 v1, b/c; all pods u1=a started, u2=b;
//	allocated u2 b/c v2, u3 ?/c g3 anew, ? ?/? g4 earlier; asks v: v3 v4; must v4; withheld v5
//
// The life is the running kubelet's. A list of pods is complete (all) or not (some). An earlier Allocate is
// one before the checkpoint. A checkpoint is the one of another search with the same text, or rewritten.
// "single a" after a list makes the list a Get of pod a.
func parse(t testing.TB, text string) (s holders.Sources) {
	t.Helper()
	for clause := range strings.SplitSeq(text, "; ") {
		word, rest, _ := strings.Cut(clause, " ")
		switch words := strings.Fields(rest); word {
		case "life":
			s.Life = rest
		case "recorded", "rewritten":
			s.Checkpoint = kubelet.Read(record(t, clause), nil)
		case "list":
			s.View = kubelet.Read(view(s.Life, rest), nil)
		case "single":
			s.Single = []kubelet.Pod{{Name: rest}}
		case "all", "some":
			s.Pods = kubelet.Read(pods(word == "all", strings.TrimPrefix(rest, "pods ")), nil)
		case "allocated":
			recorded, _ := s.Checkpoint.Get()
			for _, item := range items(rest) {
				s.Allocates = append(s.Allocates, allocate(item, recorded.Identity, s.Life))
			}
		case "asks":
			s.Question = &api.PreferRequest{Resource: resourceOf(words[0]), Available: words[1:]}
		case "must":
			s.Question.MustInclude = words
		case "withheld":
			s.Withheld = words
		default:
			t.Fatalf("%q is no source", clause)
		}
	}
	return s
}

// items are the words of items with commas between.
func items(text string) (all [][]string) {
	for item := range strings.SplitSeq(text, ", ") {
		if words := strings.Fields(item); len(words) > 0 {
			all = append(all, words)
		}
	}
	return all
}

// resourceOf returns the resource of a device by the first letter of its ID.
func resourceOf(id string) string {
	if id[0] == 'g' {
		return gpus
	}
	return vfs
}

// devices are IDs by resource.
func devices(ids ...string) kubelet.Devices {
	all := kubelet.Devices{}
	for _, id := range ids {
		all[resourceOf(id)] = append(all[resourceOf(id)], id)
	}
	return all
}

// record is the checkpoint of a clause.
func record(t testing.TB, clause string) kubelet.Checkpoint {
	t.Helper()
	_, rest, _ := strings.Cut(clause, " ")
	var all []checkpoint.Allocation
	for _, words := range items(rest) {
		uid, name, _ := strings.Cut(words[0], "/")
		for resource, ids := range devices(words[1:]...) {
			all = append(all, checkpoint.Allocation{
				PodUID: uid, Container: name, Resource: resource, Devices: map[string][]string{"-1": ids},
			})
		}
	}
	dir := t.TempDir()
	if err := checkpoint.Write(dir, all, nil); err != nil {
		t.Fatal(err)
	}
	recorded, err := kubelet.ReadCheckpoint(dir)
	if err != nil {
		t.Fatal(err)
	}
	recorded.Identity = kubelet.Identity{Sum: crc32.ChecksumIEEE([]byte(clause))}
	return recorded
}

// view is a List with the devices of containers.
func view(life, text string) kubelet.View {
	v := kubelet.View{Life: life, Containers: map[kubelet.Container]kubelet.Devices{}}
	for _, words := range items(text) {
		name, container, _ := strings.Cut(words[0], "/")
		pod := kubelet.Pod{Name: name}
		if !slices.Contains(v.Pods, pod) {
			v.Pods = append(v.Pods, pod)
		}
		v.Containers[kubelet.Container{Pod: pod, Name: container}] = devices(words[1:]...)
	}
	return v
}

// pods is a list of pods.
func pods(all bool, text string) holders.Pods {
	list := holders.OfKubelet()
	list.All = all
	for _, words := range items(text) {
		uid, name, _ := strings.Cut(words[0], "=")
		list.Names[uid], list.Started[uid] = kubelet.Pod{Name: name}, len(words) > 1
	}
	return *list
}

// allocate is an Allocate of a resource.
func allocate(words []string, recorded kubelet.Identity, life string) holders.Allocate {
	name, container, _ := strings.Cut(strings.ReplaceAll(words[1], "?", ""), "/")
	a := holders.Allocate{
		Resource: resourceOf(words[2]), IDs: words[2:3], UID: strings.Trim(words[0], "?"),
		Pod: kubelet.Pod{Name: name}, Name: container, Recorded: recorded, Life: life,
		Anew: slices.Contains(words, "anew"),
	}
	if slices.Contains(words, "earlier") {
		a.Recorded = kubelet.Identity{Sum: 1}
	}
	return a
}

// describe writes what a search has found: the holders and, after "left", the Allocates that are not over.
func describe(r holders.Result) string {
	var all []string
	for _, h := range r.Holders {
		words := []string{cmp.Or(h.UID, "?"), cmp.Or(h.Pod.Name, "?") + "/" + cmp.Or(h.Name, "?")}
		for _, resource := range slices.Sorted(maps.Keys(h.Devices)) {
			words = append(words, h.Devices[resource]...)
		}
		if h.Open {
			words = append(words, "open")
		}
		all = append(all, strings.Join(words, " "))
	}
	slices.Sort(all)
	found := []string{strings.Join(all, ", ")}
	for _, a := range r.Allocates {
		found = append(found, "left "+strings.Join(a.IDs, " "))
	}
	return strings.Join(found, "; ")
}
