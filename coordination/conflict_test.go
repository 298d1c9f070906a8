package coordination

import (
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// A kubelet with the fault of kubernetes PR 137534 gives a device out twice.
func TestDeviceOfAnotherPodIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		between func(a *admission, first kubelet.Pod)
		refused bool
	}{
		"it is held":             {func(*admission, kubelet.Pod) {}, true},
		"its pod is gone":        {func(a *admission, first kubelet.Pod) { a.remove(first) }, false},
		"its pod is a namesake":  {func(a *admission, first kubelet.Pod) { a.remove(first); a.add(first.Name) }, false},
		"the kubelet is silent":  {func(a *admission, _ kubelet.Pod) { a.away = true }, false},
		"the kubelet restarted":  {func(a *admission, _ kubelet.Pod) { a.coordinator.last = record{} }, true},
		"no look came before it": {func(a *admission, _ kubelet.Pod) { a.forgetOwners() }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAdmission(t, "oci-mi300x-derived", 4, false, 1)
			first := a.add("first")
			if !a.admit(first, "worker", wish{2, 2}) {
				t.Fatal("not admitted")
			}
			taken := a.pods[first]["worker"][vfs]
			other := a.add("other")
			if !a.admit(other, "worker", wish{1, 1}) { // by its question PodResources shows the first one's devices
				t.Fatal("not admitted")
			}
			tc.between(a, first)
			before := a.coordinator.ledger.sequence
			order, refusal := a.allocated(vfs, taken[:1])
			if tc.refused {
				if want := "refuse nvidia.com/vf " + taken[0] + ": container worker of pod team/first has it"; !strings.HasPrefix(refusal, want) || order != nil {
					t.Errorf("answer %v, refusal %q, want %q", order, refusal, want)
				}
				if a.coordinator.ledger.sequence != before {
					t.Error("what was refused is in the ledger")
				}
			} else if refusal != "" || len(order) != 1 {
				t.Errorf("answer %v, refusal %q", order, refusal)
			}
		})
	}
}

// The kubelet gives a device out again as soon as its pod has it, and asks nothing: the plan for that pod still stands.
func TestDeviceOfThePodBeforeIsRefused(t *testing.T) {
	for seed := range uint64(4) { // either half first
		a := newAdmission(t, "oci-mi300x-derived", 4, false, seed)
		first := a.add("first")
		if !a.admit(first, "worker", wish{2, 2}) {
			t.Fatal("not admitted")
		}
		for name, ids := range a.pods[first]["worker"] {
			if _, refusal := a.allocated(name, ids[:1]); refusal == "" && a.coordinator.ledger.holders[name][ids[0]].owner != nil {
				t.Errorf("seed %d: %s %s is given out twice", seed, name, ids[0])
			}
		}
	}
}

// forgetOwners makes the ledger know the owners by candidates alone, as before the first look after an admission.
func (a *admission) forgetOwners() {
	for held := range a.coordinator.ledger.allocations() {
		held.candidates, held.owner = []kubelet.Pod{held.owner.Pod}, nil
	}
}

// A container that took its init container's devices over is not a second owner.
func TestSamePodIsNoConflict(t *testing.T) {
	for seed := range uint64(10) {
		a := newAdmission(t, "oci-mi300x-derived", 1, false, seed)
		pod := a.add("pod")
		for _, container := range []string{"init", "worker"} {
			if !a.admit(pod, container, wish{4, 4}) { // fails the test if it is refused
				t.Fatal("not admitted")
			}
		}
	}
}
