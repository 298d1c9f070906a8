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

// wanting is a pod of one container, with its name as its UID.
func wanting(name string, age time.Duration, w wish) intent.Pod {
	return intent.Pod{
		Pod: kubelet.Pod{Namespace: "team", Name: name}, UID: name, Created: time.Unix(1000, 0).Add(-age),
		Containers: []intent.Container{{Name: "c", Requests: map[string]int{gpus: w.gpus, vfs: w.vfs}}},
	}
}

// Kubelets before 1.34 show a pod that they have just rejected like one that waits.
func TestWhoAsksOfSeveral(t *testing.T) {
	t.Parallel()
	old, young := wanting("old", time.Hour, wish{1, 0}), wanting("young", time.Minute, wish{1, 1})
	other, twin := wanting("other", time.Second, wish{0, 1}), wanting("twin", time.Second, wish{1, 1})
	chosen := wanting("chosen", time.Second, wish{1, 1})
	chosen.Chosen = []string{"0000:11:00.0"}
	started := wanting("started", 0, wish{1, 1})
	started.Started = true
	lost := wanting("lost", 0, wish{1, 1}) // the kubelet has no record of its devices any more
	lost.Started = true
	viewed := kubelet.Read(kubelet.View{Pods: []kubelet.Pod{old.Pod, young.Pod}}, nil)
	for name, tc := range map[string]struct {
		pods    []intent.Pod
		view    kubelet.Reading[kubelet.View]
		arrived []kubelet.Pod
		want    string // "" for nobody
		exact   bool
	}{
		"nobody wants any":                       {pods: []intent.Pod{other}},
		"one does":                               {pods: []intent.Pod{other, young}, want: "young", exact: true},
		"one has started":                        {pods: []intent.Pod{started, old}, want: "old", exact: true},
		"one has started and lost its devices":   {pods: []intent.Pod{lost, old}, want: "old"},
		"the youngest":                           {pods: []intent.Pod{old, young}, want: "young"},
		"it makes no difference":                 {pods: []intent.Pod{young, twin}, want: "twin", exact: true},
		"a scheduler has chosen devices for one": {pods: []intent.Pod{young, chosen}, want: "chosen"},
		"one that has just come": {
			pods: []intent.Pod{old, young}, view: viewed, arrived: []kubelet.Pod{old.Pod}, want: "old",
		},
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
				Pods:    kubelet.Read(intent.Answer{Source: intent.Kubelet, Pods: tc.pods}, nil),
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

// A question continues the newest container until the kubelet is done with it: until its devices are in the
// checkpoint. It takes over from init containers. A question for another number of devices than the container
// requests is of another one: the kubelet has failed that amid its admission.
func TestFollowing(t *testing.T) {
	t.Parallel()
	known := kubelet.Read(kubelet.Checkpoint{}, nil)
	requests := &asker{UID: "a", Name: "side", Exact: true, Requests: map[string]int{gpus: 1, vfs: 2}}
	for name, c := range map[string]struct {
		progress   progress
		checkpoint kubelet.Reading[kubelet.Checkpoint]
		asker      *asker
		must       []string
		size       uint32
		follows    bool
	}{
		"open":                 {progress: progressOpen, checkpoint: known, size: 1, follows: true},
		"complete":             {progress: progressComplete, checkpoint: known, size: 1},
		"takes over, open":     {progress: progressOpen, must: []string{"v1"}, size: 1, follows: true},
		"takes over, unknown":  {progress: progressUnknown, must: []string{"v1"}, size: 1, follows: true},
		"takes over, complete": {progress: progressComplete, must: []string{"v1"}, size: 1},
		"as many as requested": {progress: progressOpen, asker: requests, size: 2, follows: true},
		"another number":       {progress: progressOpen, asker: requests, size: 1},
	} {
		newest := &recipient{ID: 7, Devices: kubelet.Devices{gpus: {"g1"}}, Asker: c.asker}
		e := &evidence{Resources: announced(t), Newest: newest, Progress: c.progress, Checkpoint: c.checkpoint}
		got, why := e.following(&api.PreferRequest{Resource: vfs, MustInclude: c.must, Size: c.size})
		if (got == newest) != c.follows || got != nil && got != newest {
			t.Errorf("%s: follows %v: %s", name, got, why)
		}
	}
}

// A container that a source tells of is the newest one with which the kubelet is not done, also if no source
// told of its first half and PodResources shows it meanwhile: else its pairs file would lack that half. It
// has nothing of another container before.
func TestContainerOf(t *testing.T) {
	t.Parallel()
	asker := &asker{Pod: kubelet.Pod{Name: "b"}, UID: "b", Name: "c", Requests: map[string]int{gpus: 2, vfs: 2}}
	owner, other := asker.Container(), kubelet.Container{Pod: kubelet.Pod{Name: "a"}, Name: "c"}
	devices := kubelet.Devices{vfs: {"0000:0c:00.1"}}
	shownAs := func(owner *kubelet.Container) *recipient {
		return &recipient{ID: 7, Devices: devices, Owner: owner}
	}
	newest := shownAs(nil)
	for name, c := range map[string]struct {
		progress  progress
		resource  string
		following *recipient // nil for the one that continues, by the resource
		isNewest  bool
	}{
		"open":               {progress: progressOpen, resource: gpus, isNewest: true},
		"complete":           {progress: progressComplete, resource: gpus},
		"the same half":      {progress: progressOpen, resource: vfs},
		"itself":             {progress: progressOpen, following: newest, isNewest: true},
		"as it is shown":     {progress: progressOpen, following: shownAs(&owner), isNewest: true},
		"shown with another": {progress: progressOpen, following: shownAs(&other)},
	} {
		e := &evidence{Resources: announced(t), Newest: newest, Progress: c.progress}
		following := c.following
		if following == nil {
			following = e.continued(c.resource)
		}
		got := e.containerOf(asker, following)
		if got.ID == newest.ID != c.isNewest || got.Lacks(vfs) == c.isNewest {
			t.Errorf("%s: %+v, want it to be the newest: %t", name, got, c.isNewest)
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

// Of several candidates the one that asks for the second half requests the first one too, which no source
// told of: the kubelet is not done with that container.
func TestSecondHalfIsOfWhoRequestsTheFirst(t *testing.T) {
	t.Parallel()
	pods := []intent.Pod{wanting("old", time.Hour, wish{1, 1}), wanting("young", time.Minute, wish{0, 1})}
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
