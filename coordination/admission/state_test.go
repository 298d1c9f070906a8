// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// A plan has a lifetime, and a call is recent for a much shorter one.
func TestOpenAdmissionInTime(t *testing.T) {
	t.Attr("parity", "all/hint-expiry")
	t.Parallel()
	now := time.Now()
	a := &openAdmission{Plan: &plan{Expires: now.Add(planTTL)}, at: now}
	if a.live(now.Add(planTTL-1)) == nil || a.live(now.Add(planTTL)) != nil {
		t.Error("the plan does not live for its lifetime")
	}
	if !a.isRecent(now.Add(FollowWindow-1)) || a.isRecent(now.Add(FollowWindow)) {
		t.Error("a call is not recent within the window alone")
	}
}

// The kubelet rejects the pod of a refused container: the next question is of another container, although the
// checkpoint is unchanged.
func TestRefusedContainerIsComplete(t *testing.T) {
	t.Parallel()
	c := emptyServer()
	c.current().open = &openAdmission{Container: &recipient{Devices: kubelet.Devices{gpus: {"gpu"}}}}
	_, err := c.commit(func(tx *transaction) error {
		tx.refuseGrant(grant{resource: gpus, ids: []string{"gpu"}}, RefusedDouble,
			refusal{said: "another pod has the device"})
		return nil
	})
	progress := c.current().open.progress(kubelet.Identity{})
	if progress != progressComplete || err != nil {
		t.Errorf("progress %v, %v", progress, err)
	}
}

// A kubelet that has lost its records gives devices of a running container to another, and rejects that one:
// the container, known by its Allocates at an earlier kubelet, keeps its devices.
func TestRejectedContainerFreesItsOwnDevices(t *testing.T) {
	t.Parallel()
	for life, left := range map[string]int{"first": 1, "second": 0, "": 0} {
		c := &recipient{ID: 1, Devices: kubelet.Devices{gpus: {"g1", "g2"}}}
		s := emptyServer().current().clone()
		s.allocates = []holders.Allocate{{Resource: gpus, IDs: c.Devices[gpus], Life: "second"}}
		devices := kubelet.Devices{gpus: {"g1"}}
		s.hold(holders.Holders{{UID: "u", Name: "c", Devices: devices, Open: true, Life: life}})
		s.release(c)
		if len(s.found) != left || len(s.allocates) > 0 {
			t.Errorf("kubelet %q: %d holders, %d Allocates", life, len(s.found), len(s.allocates))
		}
	}
}

// An Allocate without a question can seem to be the other half of the container before. As soon as a look
// shows both containers, the newest one has its own devices alone.
func TestContainerThatALookShowsTwice(t *testing.T) {
	before := kubelet.Container{Pod: kubelet.Pod{Namespace: "team", Name: "before"}, Name: "c"}
	newest := kubelet.Container{Pod: kubelet.Pod{Namespace: "team", Name: "newest"}, Name: "c"}
	vfs, gpus := kubelet.Devices{"vf": {"v0"}}, kubelet.Devices{"gpu": {"g0"}}
	both := kubelet.Devices{"vf": {"v0"}, "gpu": {"g0"}}
	for _, c := range []struct {
		name    string
		shown   map[kubelet.Container]kubelet.Devices
		owner   *kubelet.Container
		devices kubelet.Devices
	}{
		{"both", map[kubelet.Container]kubelet.Devices{before: vfs, newest: gpus}, &newest, gpus},
		{"one with both", map[kubelet.Container]kubelet.Devices{newest: both}, &newest, both},
		{"only the one before", map[kubelet.Container]kubelet.Devices{before: vfs}, nil, gpus},
		{"only the newest", map[kubelet.Container]kubelet.Devices{newest: gpus}, &newest, gpus},
		{"none", nil, nil, both},
	} {
		t.Run(c.name, func(t *testing.T) {
			for range 20 { // in any order of the containers
				given := recipient{ID: 1}.WithDevices("vf", vfs["vf"]).WithDevices("gpu", gpus["gpu"])
				got := given.ShownIn(kubelet.Read(kubelet.View{Containers: c.shown}, nil))
				if !reflect.DeepEqual(got.Owner, c.owner) || !reflect.DeepEqual(got.Devices, c.devices) {
					t.Fatalf("owner %v, devices %v; want %v, %v", got.Owner, got.Devices, c.owner, c.devices)
				}
			}
		})
	}
}

// A container is immutable: its devices stay, whatever a later state adds.
func TestWithDevicesKeepsTheContainer(t *testing.T) {
	t.Parallel()
	first := recipient{}.WithDevices(gpus, []string{"g1"})
	second := first.WithDevices(vfs, []string{"v1"})
	if !first.Lacks(vfs) || second.Lacks(gpus) || second.Lacks(vfs) || second.Newest != vfs {
		t.Errorf("first %+v, second %+v", first, second)
	}
}

// A plan for the devices of an Allocate clears the pod of the plan, and no other holder: the kubelet can hand
// out a device twice that the plan had to include.
func TestPlanClearsItsOwnPodAlone(t *testing.T) {
	t.Parallel()
	own, other, now := kubelet.Pod{Name: "own"}, kubelet.Pod{Name: "other"}, time.Now()
	for planned, want := range map[string][]kubelet.Pod{"g2": {other}, "g3": {own, other}} {
		s := newState(nil)
		s.hold(holders.Holders{
			{Pod: own, Name: "init", Devices: kubelet.Devices{gpus: {"g1"}}},
			{Pod: other, Name: "c", Devices: kubelet.Devices{gpus: {"g2"}}},
		})
		s.open = &openAdmission{
			Container: &recipient{Owner: &kubelet.Container{Pod: own, Name: "c"}},
			Plan: &plan{
				Devices: map[string][]string{gpus: {"g1", planned}}, Expires: now.Add(time.Second),
			},
		}
		found := s.suspects(gpus, []string{"g1", "g2"}, now)
		if len(found) != len(want) {
			t.Fatalf("a plan with %s: %v, want %v", planned, found, want)
		}
		for i := range want {
			if found[i].pod != want[i] || !found[i].owner {
				t.Errorf("a plan with %s: %v, want %v", planned, found, want)
			}
		}
	}
}

// TestSuspectsOfSeveralDevices: a pod that is known to hold one of the devices is no mere guess for another,
// and a few suspects are enough.
func TestSuspectsOfSeveralDevices(t *testing.T) {
	t.Parallel()
	owner, now := kubelet.Pod{Name: "owner"}, time.Now()
	pods := []kubelet.Pod{owner}
	for i := range maxSuspects {
		pods = append(pods, kubelet.Pod{Name: fmt.Sprint("guess-", i)})
	}
	s := newState(nil)
	s.hold(holders.Holders{
		{Devices: kubelet.Devices{gpus: {"g1"}}}, {Pod: owner, Name: "c", Devices: kubelet.Devices{gpus: {"g2"}}},
	})
	s.open = &openAdmission{
		Container: &recipient{Pods: pods, Devices: kubelet.Devices{gpus: {"g1"}}},
	}
	found := s.suspects(gpus, []string{"g1", "g2"}, now)
	if len(found) != maxSuspects || found[0] != (suspect{owner, true}) || found[1] != (suspect{pods[1], false}) {
		t.Errorf("got %v", found)
	}
}
