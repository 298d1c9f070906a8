// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

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
