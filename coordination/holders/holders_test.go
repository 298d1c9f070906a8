// SPDX-License-Identifier: Apache-2.0

package holders_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/test/checkpoint"
)

const (
	gpus = "amd.com/gpu"
	vfs  = "nvidia.com/vf"
)

// record is a checkpoint with the devices of containers, "uid/container": "resource id,id".
func record(t testing.TB, containers map[string]string) kubelet.Checkpoint {
	t.Helper()
	var all []checkpoint.Allocation
	for _, key := range slices.Sorted(maps.Keys(containers)) {
		uid, name, _ := strings.Cut(key, "/")
		for resource, ids := range devices(containers[key]) {
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
	return recorded
}

// read is what a reader has read.
func read[T any](value T) kubelet.Reading[T] { return kubelet.Read(value, nil) }

// devices reads "resource id,id" with spaces between several.
func devices(text string) kubelet.Devices {
	read, words := kubelet.Devices{}, strings.Fields(text)
	for i := 0; i+1 < len(words); i += 2 {
		read[words[i]] = strings.Split(words[i+1], ",")
	}
	return read
}

// view is a List with the devices of containers, "pod/container"; "" for none.
func view(containers map[string]string) kubelet.Reading[kubelet.View] {
	v := kubelet.View{Containers: map[kubelet.Container]kubelet.Devices{}}
	for _, key := range slices.Sorted(maps.Keys(containers)) {
		pod, name, _ := strings.Cut(key, "/")
		if p := (kubelet.Pod{Name: pod}); !slices.Contains(v.Pods, p) {
			v.Pods = append(v.Pods, p)
		}
		v.Containers[kubelet.Container{Pod: kubelet.Pod{Name: pod}, Name: name}] = devices(containers[key])
	}
	return kubelet.Read(v, nil)
}

// living are pods by UID.
func living(all bool, names map[string]string) kubelet.Reading[holders.Pods] {
	pods := holders.Pods{Names: map[string]kubelet.Pod{}, All: all}
	for uid, name := range names {
		pods.Names[uid] = kubelet.Pod{Name: name}
	}
	return kubelet.Read(pods, nil)
}

// held is what Find says, as "resource id: who" in order.
func held(found holders.Holders) (lines []string) {
	for _, h := range found {
		for resource, ids := range h.Devices {
			for _, id := range ids {
				line := fmt.Sprintf("%s: %s %s/%s", id, h.UID, h.Pod.Name, h.Name)
				if h.Open {
					line += " open"
				}
				_ = resource
				lines = append(lines, line)
			}
		}
	}
	slices.Sort(lines)
	return lines
}

func TestFind(t *testing.T) {
	t.Parallel()
	two := record(t, map[string]string{"u1/c": gpus + " g1 " + vfs + " v1", "u2/c": gpus + " g2"})
	inits := record(t, map[string]string{"u1/init": gpus + " g1,g2", "u1/c": gpus + " g1 " + vfs + " v1"})
	one := record(t, map[string]string{"u1/c": gpus + " g1"})
	both := record(t, map[string]string{"u1/c": gpus + " g1,g2"})
	for name, tc := range map[string]struct {
		holders.Sources
		want []string
		left int
	}{
		"the list of pods says whose pod lives": {
			Sources: holders.Sources{Checkpoint: read(two), Pods: living(true, map[string]string{"u2": "b"})},
			want:    []string{"g2: u2 b/c"},
		},
		"of two pods of a name none is known to be the one that List shows": {
			Sources: holders.Sources{
				View: view(map[string]string{"a/c": gpus + " g1"}), Checkpoint: read(record(t, nil)),
				Pods: living(false, map[string]string{"u1": "a", "u2": "a"}),
			},
			want: []string{"g1:  a/c open"},
		},
		"but an Allocate says whose container List shows": {
			Sources: holders.Sources{
				View: view(map[string]string{"a/c": gpus + " g1"}), Checkpoint: read(record(t, nil)),
				Pods: living(false, map[string]string{"u1": "a", "u2": "a"}),
				Allocates: []holders.Allocate{
					{Resource: vfs, IDs: []string{"v1"}, UID: "u2", Pod: kubelet.Pod{Name: "a"}, Name: "c"},
				},
			},
			want: []string{"g1: u2 a/c open", "v1: u2 a/c open"}, left: 1,
		},
		"pods beside a list that is not all can live": {
			Sources: holders.Sources{Checkpoint: read(two), Pods: living(false, map[string]string{"u2": "b"})},
			want:    []string{"g1: u1 /c", "g2: u2 b/c", "v1: u1 /c"},
		},
		"a list that is not all names a pod that List shows without devices": {
			Sources: holders.Sources{
				Checkpoint: read(two), Pods: living(false, map[string]string{"u1": "a", "u2": "b"}),
				View: view(map[string]string{"a/c": "", "b/c": gpus + " g2"}),
			},
			want: []string{"g2: u2 b/c"}, // the kubelet admits it again
		},
		"a pod that runs keeps what a kubelet without its records does not show": {
			Sources: holders.Sources{
				Checkpoint: read(two), View: view(map[string]string{"a/c": "", "b/c": gpus + " g2"}),
				Pods: kubelet.Read(holders.Pods{
					Names:   map[string]kubelet.Pod{"u1": {Name: "a"}, "u2": {Name: "b"}},
					Started: map[string]bool{"u1": true, "u2": true},
				}, nil),
			},
			want: []string{"g1: u1 a/c", "g2: u2 b/c", "v1: u1 a/c"},
		},
		"of two recorded pods of a name the later one is shown": {
			Sources: holders.Sources{
				Checkpoint: read(two), View: view(map[string]string{"a/c": gpus + " g2"}),
				Known: map[string]holders.Known{
					"u1": {Pod: kubelet.Pod{Name: "a"}}, "u2": {Pod: kubelet.Pod{Name: "a"}},
				},
				Question: &api.PreferRequest{Resource: vfs}, Withheld: []string{"v1"},
			},
			want: []string{"g1: u1 a/c", "g2: u2 a/c", "v1: u1 a/c"},
		},
		"or the earlier one, in the order of the UIDs": {
			Sources: holders.Sources{
				Checkpoint: read(two), View: view(map[string]string{"a/c": gpus + " g1 " + vfs + " v1"}),
				Known: map[string]holders.Known{
					"u1": {Pod: kubelet.Pod{Name: "a"}}, "u2": {Pod: kubelet.Pod{Name: "a"}},
				},
				Question: &api.PreferRequest{Resource: gpus}, Withheld: []string{"g2"},
			},
			want: []string{"g1: u1 a/c", "g2: u2 a/c", "v1: u1 a/c"},
		},
		"an Allocate of a later pod of the name is not the earlier pod's": {
			Sources: holders.Sources{
				Checkpoint: read(two), View: view(map[string]string{"a/c": "", "b/c": gpus + " g2"}),
				Known:    map[string]holders.Known{"u1": {Pod: kubelet.Pod{Name: "a"}}},
				Question: &api.PreferRequest{Resource: vfs}, Withheld: []string{"v1"},
				Allocates: []holders.Allocate{{Resource: gpus, IDs: []string{"g3"}, Recorded: two.Identity}},
			},
			want: []string{"g1: u1 a/c", "g2: u2 b/c", "g3:  / open", "v1: u1 a/c"}, left: 1,
		},
		"nor what List shows of the later pod": {
			Sources: holders.Sources{
				Checkpoint: read(two), View: view(map[string]string{"a/c": gpus + " g3", "b/c": gpus + " g2"}),
				Known:    map[string]holders.Known{"u1": {Pod: kubelet.Pod{Name: "a"}}},
				Question: &api.PreferRequest{Resource: vfs}, Withheld: []string{"v1"},
			},
			want: []string{"g1: u1 a/c", "g2: u2 b/c", "g3:  a/c open", "v1: u1 a/c"},
		},
		"without a list pods are found by what they have": {
			Sources: holders.Sources{
				Checkpoint: read(two), View: view(map[string]string{"b/c": gpus + " g2", "d/c": ""}),
			},
			want: []string{"g1: u1 /c", "g2: u2 b/c", "v1: u1 /c"},
		},
		"what is left of an init container stays with its pod": {
			Sources: holders.Sources{
				Checkpoint: read(inits), View: view(map[string]string{"a/c": gpus + " g1 " + vfs + " v1"}),
			},
			want: []string{"g1: u1 a/c", "g1: u1 a/init", "g2: u1 a/init", "v1: u1 a/c"},
		},
		"a device that is offered frees its whole pod": {
			Sources: holders.Sources{
				Checkpoint: read(two), Question: &api.PreferRequest{Resource: vfs, Available: []string{"v1"}},
			},
			want: []string{"g2: u2 /c"},
		},
		"one that has to be taken frees nobody": {
			Sources: holders.Sources{
				Checkpoint: read(inits),
				Question: &api.PreferRequest{
					Resource: gpus, Available: []string{"g2", "g3"}, MustInclude: []string{"g2"},
				},
			},
			want: []string{"g1: u1 /c", "g1: u1 /init", "g2: u1 /init", "v1: u1 /c"},
		},
		"nor one that List shows": {
			Sources: holders.Sources{
				Checkpoint: read(two), View: view(map[string]string{"a/c": gpus + " g1 " + vfs + " v1"}),
				Question: &api.PreferRequest{Resource: vfs, Available: []string{"v1"}},
			},
			want: []string{"g1: u1 a/c", "g2: u2 /c", "v1: u1 a/c"},
		},
		"a device that another pod has frees the one before": {
			Sources: holders.Sources{
				Checkpoint: read(two), View: view(map[string]string{"next/c": gpus + " g1", "b/c": gpus + " g2"}),
			},
			want: []string{"g1:  next/c open", "g2: u2 b/c"},
		},
		"a container that List shows and the checkpoint does not is in admission": {
			Sources: holders.Sources{
				Checkpoint: read(two), Pods: living(true, map[string]string{"u1": "a", "u2": "b", "u3": "new"}),
				View: view(map[string]string{
					"a/c": gpus + " g1 " + vfs + " v1", "b/c": gpus + " g2", "new/c": gpus + " g3",
				}),
			},
			want: []string{"g1: u1 a/c", "g2: u2 b/c", "g3: u3 new/c open", "v1: u1 a/c"},
		},
		"an Allocate that nothing tells of yet": {
			Sources: holders.Sources{
				Checkpoint: read(two), Pods: living(true, map[string]string{"u2": "b", "u3": "new"}),
				Allocates: []holders.Allocate{
					{Resource: gpus, IDs: []string{"g3"}, UID: "u3", Name: "init", Recorded: two.Identity},
				},
				Question: &api.PreferRequest{Resource: vfs},
			},
			want: []string{"g2: u2 b/c", "g3: u3 /init open"}, left: 1,
		},
		"is over when its pod has ended": {
			Sources: holders.Sources{
				Checkpoint: read(two), Pods: living(true, map[string]string{"u2": "b"}),
				Allocates: []holders.Allocate{
					{Resource: gpus, IDs: []string{"g3"}, UID: "u3", Name: "init", Recorded: two.Identity},
				},
			},
			want: []string{"g2: u2 b/c"},
		},
		"when the checkpoint has been written since": {
			Sources: holders.Sources{
				Checkpoint: read(two),
				Allocates:  []holders.Allocate{{Resource: gpus, IDs: []string{"g3"}, Recorded: inits.Identity}},
			},
			want: []string{"g1: u1 /c", "g2: u2 /c", "v1: u1 /c"},
		},
		"when its resource is asked for again": {
			Sources: holders.Sources{
				Checkpoint: read(two),
				Allocates:  []holders.Allocate{{Resource: gpus, IDs: []string{"g3"}, Recorded: two.Identity}},
				Question:   &api.PreferRequest{Resource: gpus},
			},
			want: []string{"g1: u1 /c", "g2: u2 /c", "v1: u1 /c"},
		},
		"when List shows it": {
			Sources: holders.Sources{
				Checkpoint: read(two), View: view(map[string]string{"new/c": gpus + " g3"}),
				Allocates: []holders.Allocate{{Resource: gpus, IDs: []string{"g3"}, Recorded: two.Identity}},
			},
			want: []string{"g1: u1 /c", "g2: u2 /c", "g3:  new/c open", "v1: u1 /c"},
		},
		"a pod does not become its successor that was given the same": {
			Sources: holders.Sources{
				Checkpoint: read(two),
				View:       view(map[string]string{"next/c": gpus + " g2"}),
				Allocates:  []holders.Allocate{{Resource: gpus, IDs: []string{"g2"}, Recorded: two.Identity}},
			},
			want: []string{"g1: u1 /c", "g2:  next/c open", "v1: u1 /c"},
		},
		"a device that is offered frees the other containers of its pod": {
			Sources: holders.Sources{
				Checkpoint: read(inits), Question: &api.PreferRequest{Resource: vfs, Available: []string{"v1"}},
			},
		},
		"the same ID of another resource frees nobody": {
			Sources: holders.Sources{
				Checkpoint: read(one), Question: &api.PreferRequest{Resource: vfs, Available: []string{"g1"}},
			},
			want: []string{"g1: u1 /c"},
		},
		"nor an offered device that List shows with another container": {
			Sources: holders.Sources{
				Checkpoint: read(one), View: view(map[string]string{"d/x": gpus + " g1"}),
				Question: &api.PreferRequest{Resource: gpus, Available: []string{"g1"}},
			},
			want: []string{"g1:  d/x open", "g1: u1 /c"},
		},
		"a pod with a withheld device is alive for the kubelet": {
			Sources: holders.Sources{
				Checkpoint: read(two), Pods: living(true, map[string]string{"u2": "b"}),
				Question: &api.PreferRequest{Resource: gpus, Available: []string{"g3"}}, Withheld: []string{"g1"},
			},
			want: []string{"g1: u1 /c", "g2: u2 b/c", "v1: u1 /c"},
		},
		"a withheld device that a later pod was given tells nothing of the pod before": {
			Sources: holders.Sources{
				Checkpoint: read(both),
				Allocates: []holders.Allocate{
					{Resource: gpus, IDs: []string{"g1"}, UID: "u3", Anew: true, Recorded: both.Identity},
				},
				Question: &api.PreferRequest{Resource: gpus, Available: []string{"g2"}}, Withheld: []string{"g1"},
			},
		},
		"an offered device of a pod that List shows with another device frees nobody": {
			Sources: holders.Sources{
				Checkpoint: read(record(t, map[string]string{"u1/c": gpus + " g1", "u1/init": gpus + " g2,g3"})),
				View:       view(map[string]string{"a/c": gpus + " g1"}),
				Question:   &api.PreferRequest{Resource: gpus, Available: []string{"g2"}},
			},
			want: []string{"g1: u1 a/c", "g2: u1 a/init", "g3: u1 a/init"},
		},
		"the pod of one record is not that of another": {
			Sources: holders.Sources{
				Checkpoint: read(record(t, map[string]string{"u1/c": gpus + " g2", "u2/c": gpus + " g1"})),
				Pods:       living(false, map[string]string{"u1": "a"}),
				Before: holders.Holders{
					{Pod: kubelet.Pod{Name: "a"}, Name: "c", Devices: devices(gpus + " g1"), Open: true},
				},
			},
			want: []string{"g1: u2 /c", "g2: u1 a/c"},
		},
		"an Allocate before the checkpoint does not end the pod": {
			Sources: holders.Sources{
				Checkpoint: read(one),
				Allocates: []holders.Allocate{
					{Resource: gpus, IDs: []string{"g1"}, UID: "u0", Anew: true, Recorded: two.Identity},
				},
			},
			want: []string{"g1: u1 /c"},
		},
		"nor an Allocate of the next container of the pod": {
			Sources: holders.Sources{
				Checkpoint: read(inits),
				Allocates: []holders.Allocate{
					{Resource: gpus, IDs: []string{"g2"}, UID: "u1", Name: "d", Recorded: inits.Identity},
				},
			},
			want: []string{"g1: u1 /c", "g1: u1 /init", "g2: u1 /d open", "g2: u1 /init", "v1: u1 /c"}, left: 1,
		},
		"nor the List of a kubelet that has just started": {
			Sources: holders.Sources{
				Checkpoint: read(one), View: kubelet.Read(kubelet.View{Life: "2"}, nil), Looked: true, ListedLife: "1",
				Known: map[string]holders.Known{"u1": {Pod: kubelet.Pod{Name: "a"}, Listed: true, Life: "1"}},
			},
			want: []string{"g1: u1 a/c"},
		},
		"a holder of the last search is no longer in admission": {
			Sources: holders.Sources{
				Before: holders.Holders{{UID: "u1", Name: "c", Devices: devices(gpus + " g1"), Open: true}},
			},
			want: []string{"g1: u1 /c"},
		},
		"without the checkpoint there are List and Allocates": {
			Sources: holders.Sources{
				View: view(map[string]string{"a/c": gpus + " g1"}),
				Allocates: []holders.Allocate{
					{Resource: vfs, IDs: []string{"v1"}}, {Resource: gpus, IDs: []string{"g1"}},
				},
			},
			want: []string{"g1:  a/c open", "v1:  a/c open"}, left: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result := holders.Find(tc.Sources)
			found, left := result.Holders, result.Allocates
			if diff := cmp.Diff(tc.want, held(found)); diff != "" {
				t.Errorf("held (-want +got):\n%s", diff)
			}
			if len(left) != tc.left {
				t.Errorf("%v are left, want %d", left, tc.left)
			}
			for _, h := range found {
				for resource, ids := range h.Devices {
					for _, id := range ids {
						if len(found.Of(resource, id)) == 0 {
							t.Errorf("%s is held, and not said to be", id)
						}
					}
				}
			}
		})
	}
}

// A search changes none of its sources: List is the listing of the next search.
func TestFindKeepsList(t *testing.T) {
	t.Parallel()
	list := view(map[string]string{"a/c": gpus + " g1"})
	found := holders.Find(holders.Sources{
		Checkpoint: read(record(t, nil)), View: list,
		Allocates: []holders.Allocate{{Resource: vfs, IDs: []string{"v1"}}},
	}).Holders
	if diff := cmp.Diff([]string{"g1:  a/c open", "v1:  a/c open"}, held(found)); diff != "" {
		t.Errorf("held (-want +got):\n%s", diff)
	}
	want := view(map[string]string{"a/c": gpus + " g1"})
	if !reflect.DeepEqual(list, want) {
		t.Errorf("List has changed: %+v, want %+v", list, want)
	}
}

// A request source corrects the name of a pod that an earlier search has inferred, with all that was known by
// the wrong name.
func TestWrongNameIsCorrected(t *testing.T) {
	t.Parallel()
	sources := holders.Sources{
		Checkpoint: read(record(t, map[string]string{"u1/c": gpus + " g1"})),
		Pods:       living(true, map[string]string{"u1": "a"}),
		Known: map[string]holders.Known{
			"u1": {Pod: kubelet.Pod{Name: "wrong"}, Listed: true, Life: "1", Containers: []string{"other"}},
		},
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
	found := holders.Find(holders.Sources{
		Before: holders.Holders{
			{Name: "c", Devices: devices(gpus + " g1")}, {Name: "c", Devices: devices(vfs + " v1")},
		},
		View: view(map[string]string{"a/c": gpus + " g1"}),
	}).Holders
	if diff := cmp.Diff([]string{"g1:  a/c open", "v1:  /c"}, held(found)); diff != "" {
		t.Errorf("held (-want +got):\n%s", diff)
	}
}

// A pod that the checkpoint has for the first time while List fails has come since the last List: the next
// List of the same kubelet that lacks its devices shows that the pod has ended.
func TestPodOfTheCheckpointAdmittedWhileListFails(t *testing.T) {
	t.Parallel()
	const life = "1"
	sources := holders.Sources{
		Checkpoint: read(record(t, map[string]string{"u1/c": gpus + " g1"})), Looked: true, ListedLife: life,
	}
	first := holders.Find(sources)
	if want := []string{"g1: u1 /c"}; !slices.Equal(held(first.Holders), want) {
		t.Fatalf("held %v, want %v", held(first.Holders), want)
	}
	sources.Known = first.Known
	sources.View = kubelet.Read(kubelet.View{Pods: []kubelet.Pod{{Name: "b"}}, Life: life,
		Containers: map[kubelet.Container]kubelet.Devices{
			{Pod: kubelet.Pod{Name: "b"}, Name: "c"}: devices(gpus + " g2"),
		},
	}, nil)
	if found := holders.Find(sources).Holders; len(found.Of(gpus, "g1")) > 0 {
		t.Errorf("g1 is still held by %v", found.Of(gpus, "g1"))
	}
}

// BenchmarkFind is a question on a node of 100 pods with a GPU and a VF each.
func BenchmarkFind(b *testing.B) {
	containers, shown, names := map[string]string{}, map[string]string{}, map[string]string{}
	for i := range 100 {
		has := fmt.Sprintf("%s g%d %s v%d", gpus, i, vfs, i)
		containers[fmt.Sprintf("u%d/c", i)], shown[fmt.Sprintf("p%d/c", i)] = has, has
		names[fmt.Sprintf("u%d", i)] = fmt.Sprintf("p%d", i)
	}
	s := holders.Sources{
		Checkpoint: read(record(b, containers)), View: view(shown), Question: &api.PreferRequest{Resource: gpus},
	}
	b.Run("names", func(b *testing.B) {
		for b.Loop() {
			holders.Find(s)
		}
	})
	s.Pods = living(true, names)
	b.Run("UIDs", func(b *testing.B) {
		for b.Loop() {
			holders.Find(s)
		}
	})
}

// TestKubeletStarts: a kubelet that has started adds its pods one by one, and may have lost its records. A
// pod that it has not listed yet has not ended, and a running pod keeps what the kubelet before had
// recorded.
func TestKubeletStarts(t *testing.T) {
	t.Parallel()
	recorded := record(t, map[string]string{"u1/c": gpus + " g1", "u2/c": gpus + " g2"})
	all := living(false, map[string]string{"u1": "a", "u2": "b"})
	first := holders.Find(holders.Sources{Checkpoint: read(recorded), Pods: all, Life: "first"})
	both := []string{"g1: u1 a/c", "g2: u2 b/c"}
	for name, step := range map[string]struct {
		recorded kubelet.Checkpoint
		pods     kubelet.Reading[holders.Pods]
		kubelet  string
		want     []string
	}{
		"a pod ends":      {recorded, living(false, map[string]string{"u2": "b"}), "first", both[1:]},
		"not listed yet":  {recorded, living(false, map[string]string{"u2": "b"}), "second", both},
		"records lost":    {record(t, nil), all, "second", both},
		"lost, no list":   {record(t, nil), kubelet.Reading[holders.Pods]{}, "second", both},
		"lost, one ended": {record(t, nil), living(true, map[string]string{"u2": "b"}), "second", both[1:]},
		"taken back":      {record(t, nil), all, "first", nil},
	} {
		found := holders.Find(holders.Sources{
			Checkpoint: read(step.recorded), Pods: step.pods, Life: step.kubelet, Known: first.Known,
			Before: first.Holders,
		})
		if diff := cmp.Diff(step.want, held(found.Holders)); diff != "" {
			t.Errorf("%s: held (-want +got):\n%s", name, diff)
		}
	}
}

// listOf is a List of a kubelet.
func listOf(life string, containers map[string]string) kubelet.Reading[kubelet.View] {
	v, _ := view(containers).Get()
	v.Life = life
	return read(v)
}

// A pod that List has proved to have ended is gone without a List too: until the kubelet writes its
// checkpoint, another kubelet starts, or List shows the pod. A request source proves less: a static pod can
// come back, and has its devices again if the kubelet has not freed them.
func TestFreedAtList(t *testing.T) {
	t.Parallel()
	both := listOf("first", map[string]string{"a/c": gpus + " g1", "b/c": gpus + " g2"})
	second := listOf("first", map[string]string{"b/c": gpus + " g2"})
	without := living(true, map[string]string{"u2": "b"})
	recorded := record(t, map[string]string{"u1/c": gpus + " g1", "u2/c": gpus + " g2"})
	later := recorded
	later.Identity.Modified++
	same := holders.Sources{Checkpoint: read(recorded), Life: "first"}
	shown := same
	shown.View = both
	byList := holders.Sources{View: second}
	left, all := []string{"g2: u2 b/c"}, []string{"g1: u1 a/c", "g2: u2 b/c"}
	for name, c := range map[string]struct {
		ends, then holders.Sources
		want       []string
	}{
		"by List":              {byList, same, left},
		"by List and a source": {holders.Sources{View: second, Pods: without}, same, left},
		"by a source":          {holders.Sources{Pods: without}, same, all},
		"by a source first":    {holders.Sources{View: both, Pods: without}, same, all},
		"by Get":               {holders.Sources{View: second, Single: []kubelet.Pod{{Name: "a"}}}, same, all},
		"List shows it":        {byList, shown, all},
		"a checkpoint":         {byList, holders.Sources{Checkpoint: read(later), Life: "first"}, all},
		"another kubelet":      {byList, holders.Sources{Checkpoint: read(recorded), Life: "second"}, all},
		"an unknown kubelet":   {byList, holders.Sources{Checkpoint: read(recorded)}, all},
	} {
		c.ends.Checkpoint, c.ends.Life, c.ends.Looked, c.ends.ListedLife = read(recorded), "first", true, "first"
		c.ends.Known = holders.Find(shown).Known
		same.Known = holders.Find(c.ends).Known
		c.then.Known = holders.Find(same).Known // nothing has changed
		if diff := cmp.Diff(c.want, held(holders.Find(c.then).Holders)); diff != "" {
			t.Errorf("%s: held (-want +got):\n%s", name, diff)
		}
	}
}
