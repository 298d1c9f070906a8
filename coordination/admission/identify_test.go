// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// Kubelets before 1.34 show a pod that they have just rejected like one that waits.
func TestWhoAsksOfSeveral(t *testing.T) {
	t.Parallel()
	pod := func(name string, age time.Duration, w wish) intent.Pod {
		return intent.Pod{
			Pod: kubelet.Pod{Namespace: "team", Name: name}, UID: name, Created: time.Unix(1000, 0).Add(-age),
			Containers: []intent.Container{{Name: "c", Requests: map[string]int{gpus: w.gpus, vfs: w.vfs}}},
		}
	}
	old, young, other := pod("old", time.Hour, wish{1, 0}), pod("young", time.Minute, wish{1, 1}),
		pod("other", time.Second, wish{0, 1})
	twin := pod("twin", time.Second, wish{1, 1})
	chosen := pod("chosen", time.Second, wish{1, 1})
	chosen.Chosen = []string{"0000:11:00.0"}
	started := pod("started", 0, wish{1, 1})
	started.Started = true
	lost := pod("lost", 0, wish{1, 1}) // the kubelet has no record of its devices any more
	lost.Started = true
	viewed := kubelet.Read(kubelet.View{Pods: []kubelet.Pod{old.Pod, young.Pod}}, nil)
	for name, tc := range map[string]struct {
		pods    []intent.Pod
		source  intent.Source
		view    kubelet.Reading[kubelet.View]
		arrived []kubelet.Pod
		want    string // "" for nobody
		exact   bool
	}{
		"nobody wants any": {pods: []intent.Pod{other}, source: intent.PodsAPI},
		"one does": {pods: []intent.Pod{other, young}, source: intent.PodsAPI,
			want: "young", exact: true},
		"one has started": {pods: []intent.Pod{started, old}, source: intent.PodsAPI,
			want: "old", exact: true},
		"one has started and lost its devices": {pods: []intent.Pod{lost, old},
			source: intent.PodsAPI, want: "old"},
		"the youngest": {pods: []intent.Pod{old, young}, source: intent.Kubelet,
			want: "young"},
		"it makes no difference": {pods: []intent.Pod{young, twin}, source: intent.Kubelet,
			want: "twin", exact: true},
		"a scheduler has chosen devices for one": {pods: []intent.Pod{young, chosen}, source: intent.Kubelet,
			want: "chosen"},
		"one that has just come": {pods: []intent.Pod{old, young}, source: intent.Kubelet,
			view: viewed, arrived: []kubelet.Pod{old.Pod}, want: "old"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := &evidence{
				Resources: device.Resources{
					gpus: device.NewResource(gpus, device.GPU, nil), vfs: device.NewResource(vfs, device.VF, nil),
				},
				Holders: holders.Holders{
					{UID: started.UID, Pod: started.Pod, Name: "c", Devices: kubelet.Devices{gpus: {"its own"}}},
				},
				Listing: listing{Arrived: tc.arrived, Pods: map[kubelet.Pod]bool{old.Pod: true, young.Pod: true}},
				View:    tc.view,
				Pods:    kubelet.Read(intent.Answer{Source: tc.source, Pods: tc.pods}, nil),
			}
			got := e.findAsker(&api.PreferRequest{Resource: gpus, Size: 1})
			switch {
			case (got == nil) != (tc.want == ""):
				t.Errorf("asks %v, want %q", got, tc.want)
			case got != nil && (got.Pod.Name != tc.want || got.Exact != tc.exact):
				t.Errorf("asks %s, want %q, exact %v", got.describe(), tc.want, tc.exact)
			}
		})
	}
}

// The devices of an earlier pod of the same name are not those of the pod that asks.
func TestDevicesOfAnEarlierPodOfTheName(t *testing.T) {
	t.Parallel()
	pod := intent.Pod{
		Pod: kubelet.Pod{Name: "a"}, UID: "new",
		Containers: []intent.Container{{Name: "c", Requests: map[string]int{gpus: 1}}},
	}
	for uid, asks := range map[string]bool{"old": true, "new": false, "": false} {
		e := &evidence{
			Resources: announced(t),
			Pods:      kubelet.Read(intent.Answer{Source: intent.PodsAPI, Pods: []intent.Pod{pod}}, nil),
			Holders:   holders.Holders{{UID: uid, Pod: pod.Pod, Name: "c", Devices: kubelet.Devices{gpus: {"g1"}}}},
		}
		if got := e.findAsker(&api.PreferRequest{Resource: gpus, Size: 1}); (got != nil) != asks {
			t.Errorf("devices of UID %q: %v asks, want somebody: %t", uid, got, asks)
		}
		asker := &asker{Pod: pod.Pod, UID: pod.UID, Name: "c"}
		if c := e.containerOf(asker, e.continued(vfs)); c.Has(gpus, "g1") == asks {
			t.Errorf("devices of UID %q: the container has %v, want them: %t", uid, c.Devices, !asks)
		}
	}
}

// A call a long time after the latest one is of another container, unless a request or a pod relates them.
func TestLateCallIsUnrelated(t *testing.T) {
	t.Parallel()
	for _, late := range []bool{false, true} {
		e := &evidence{Late: late, Progress: progressOpen}
		for pods, want := range map[string]bool{"": late, "a": false} {
			c := &recipient{ID: 1, Devices: kubelet.Devices{gpus: {"g1"}}}
			if pods != "" {
				c.Pods = []kubelet.Pod{{Name: pods}}
			}
			if got := e.IsUnrelated(c); got != want {
				t.Errorf("late %t, pods %v: unrelated %t", late, c.Pods, got)
			}
		}
	}
}

// A pod that is deleted and created again under its name arrives: a running container never loses a device.
func TestPodThatIsCreatedAgainArrives(t *testing.T) {
	t.Parallel()
	pod := kubelet.Pod{Name: "a"}
	list := func(id string) kubelet.View {
		return kubelet.View{
			Pods:       []kubelet.Pod{pod, {Name: "b"}},
			Containers: map[kubelet.Container]kubelet.Devices{{Pod: pod, Name: "c"}: {gpus: {id}}},
		}
	}
	before := listing{}.With(kubelet.Read(list("g1"), nil))
	for id, arrived := range map[string]int{"g1": 0, "g2": 1} {
		if got := before.arrivals(list(id)); len(got) != arrived || arrived > 0 && got[0] != pod {
			t.Errorf("with %s: %v arrived, want %d", id, got, arrived)
		}
	}
}

// A container that the kubelet is done with takes over nothing: the question with devices of init containers
// is of another container.
func TestCompleteContainerTakesNothingOver(t *testing.T) {
	t.Parallel()
	for progress, is := range map[progress]bool{
		progressOpen: true, progressUnknown: true, progressComplete: false,
	} {
		newest := &recipient{ID: 7, Devices: kubelet.Devices{gpus: {"g1"}}}
		e := &evidence{Resources: announced(t), Newest: newest, Progress: progress}
		got, _ := e.following(&api.PreferRequest{Resource: vfs, MustInclude: []string{"v1"}, Size: 1})
		if (got == newest) != is {
			t.Errorf("progress %v: %+v", progress, got)
		}
	}
}

// A container that is given devices without a question has nothing of the container before, with which the
// kubelet is done: else its pairs file would lack the devices.
func TestContainerAfterACompleteOne(t *testing.T) {
	t.Parallel()
	set := announced(t)
	before := &recipient{ID: 1, Devices: kubelet.Devices{vfs: {"0000:0c:00.1"}}}
	asker := &asker{Pod: kubelet.Pod{Name: "b"}, UID: "b", Name: "c", Requests: map[string]int{gpus: 4, vfs: 4}}
	for progress, follows := range map[progress]bool{progressComplete: false, progressOpen: true} {
		e := &evidence{Resources: set, Newest: before, Progress: progress}
		c := e.containerOf(asker, e.continued(gpus))
		if got := c.ID == before.ID && !c.Lacks(vfs); got != follows {
			t.Errorf("progress %v: %+v, want it to be the container before: %t", progress, c, follows)
		}
	}
	e := &evidence{Resources: set, Newest: before, Progress: progressOpen}
	if c := e.containerOf(asker, e.continued(vfs)); c.ID != 0 {
		t.Errorf("given VFs again: %+v", c)
	}
}

// A container that asks for another number of devices than the one before is another one: the kubelet has
// failed that amid its admission.
func TestAnotherNumberIsAnotherContainer(t *testing.T) {
	t.Parallel()
	for size, follows := range map[int]bool{2: true, 1: false} {
		e := &evidence{
			Resources: announced(t), Progress: progressOpen,
			Newest: &recipient{
				ID: 1, Devices: kubelet.Devices{gpus: {"0000:19:00.0"}},
				Asker: &asker{UID: "a", Name: "side", Exact: true, Requests: map[string]int{gpus: 1, vfs: 2}},
			},
		}
		if got, why := e.following(&api.PreferRequest{Resource: vfs, Size: uint32(size)}); (got != nil) != follows {
			t.Errorf("a question for %d: %v, %s", size, got, why)
		}
	}
}

// The kubelet asks for all devices of a resource at once: a question for more or fewer devices than the asker
// requests is of an unknown container.
func TestAskerOfAnotherNumberIsUnknown(t *testing.T) {
	t.Parallel()
	asker := &asker{UID: "a", Requests: map[string]int{gpus: 2, vfs: 2}}
	for size, known := range map[int]bool{1: false, 2: true, 3: false} {
		q := &api.PreferRequest{Resource: vfs, Size: uint32(size)}
		c := recipient{Asker: asker, Pods: []kubelet.Pod{{Name: "a"}}}.forQuestion(q)
		if (c.Asker != nil) != known || (c.Pods != nil) != known {
			t.Errorf("a question for %d: asker %v, pods %v", size, c.Asker, c.Pods)
		}
	}
}

// A question continues a container whose devices are not in the checkpoint yet, and no other container.
func TestCompleteContainerIsNotContinued(t *testing.T) {
	t.Parallel()
	for progress, continues := range map[progress]bool{progressOpen: true, progressComplete: false} {
		newest := &recipient{ID: 7, Devices: kubelet.Devices{gpus: {"0000:2f:00.0"}}}
		e := &evidence{Resources: announced(t), Newest: newest, Progress: progress,
			Checkpoint: kubelet.Read(kubelet.Checkpoint{}, nil)}
		if got, why := e.following(&api.PreferRequest{Resource: vfs, Size: 1}); (got == newest) != continues {
			t.Errorf("progress %v: %v, %s", progress, got, why)
		}
	}
}

// A container whose first half no source told of, and that PodResources shows meanwhile, is the same when a
// source tells of it: else its pairs file would lack the first half.
func TestContainerThatASourceTellsOfLater(t *testing.T) {
	t.Parallel()
	asker := &asker{Pod: kubelet.Pod{Name: "b"}, UID: "b", Name: "c", Requests: map[string]int{gpus: 2, vfs: 2}}
	owner, other := asker.Container(), kubelet.Container{Pod: kubelet.Pod{Name: "a"}, Name: "c"}
	devices := kubelet.Devices{gpus: {"0000:2f:00.0", "0000:46:00.0"}}
	newest := &recipient{ID: 7, Devices: devices}
	for name, c := range map[string]struct {
		following *recipient
		want      int
	}{
		"itself":             {newest, 7},
		"as it is shown":     {&recipient{ID: 7, Devices: devices, Owner: &owner}, 7},
		"shown with another": {&recipient{ID: 7, Devices: devices, Owner: &other}, 0},
		"none":               {nil, 0},
	} {
		e := &evidence{Resources: announced(t), Newest: newest, Progress: progressOpen}
		if got := e.containerOf(asker, c.following); got.ID != c.want {
			t.Errorf("%s: %+v, want ID %d", name, got, c.want)
		}
	}
}

// Of several candidates the one that asks for the second half requests the first one too, which no source
// told of: the kubelet is not done with that container.
func TestSecondHalfIsOfWhoRequestsTheFirst(t *testing.T) {
	t.Parallel()
	pod := func(name string, age time.Duration, requests map[string]int) intent.Pod {
		return intent.Pod{
			Pod: kubelet.Pod{Name: name}, UID: name, Created: time.Unix(1000, 0).Add(-age),
			Containers: []intent.Container{{Name: "c", Requests: requests}},
		}
	}
	both, vfsAlone := map[string]int{gpus: 1, vfs: 1}, map[string]int{vfs: 1}
	pods := []intent.Pod{pod("old", time.Hour, both), pod("young", time.Minute, vfsAlone)}
	for progress, want := range map[progress]string{progressOpen: "old", progressComplete: "young"} {
		e := &evidence{
			Resources: announced(t), Newest: &recipient{ID: 1, Devices: kubelet.Devices{gpus: {"g1"}}},
			Progress: progress, Recent: true,
			Pods: kubelet.Read(intent.Answer{Source: intent.Kubelet, Pods: pods}, nil),
		}
		c, _ := e.identifyRecipient(&api.PreferRequest{Resource: vfs, Available: []string{"v1", "v2"}, Size: 1})
		if c.Asker == nil || c.Asker.Pod.Name != want {
			t.Errorf("progress %d: %+v asks, want pod %s", progress, c.Asker, want)
		}
	}
}

// announced are the two resources without devices.
func announced(t *testing.T) (set device.Resources) {
	t.Helper()
	for name, kind := range map[string]device.Kind{gpus: device.GPU, vfs: device.VF} {
		next, err := set.Announce(name, kind, device.Announcement{})
		if err != nil {
			t.Fatal(err)
		}
		set = next
	}
	return set
}

// A kubelet that has lost the record of a container passes none of its devices on: they are in the answer
// because the kubelet takes all devices of its NUMA nodes, and the question is of any pod.
func TestLostContainerPassesNothingOn(t *testing.T) {
	t.Parallel()
	for _, lost := range []bool{false, true} {
		e := &evidence{Resources: announced(t), Holders: holders.Holders{{
			UID: "u", Pod: kubelet.Pod{Name: "a"}, Name: "c", Devices: kubelet.Devices{gpus: {"g1"}}, Lost: lost,
		}}}
		of := e.inherited(&api.PreferRequest{Resource: gpus, MustInclude: []string{"g1"}, Size: 2})
		if (len(of) == 0) != lost {
			t.Errorf("lost %t: taken over from %v", lost, of)
		}
	}
}
