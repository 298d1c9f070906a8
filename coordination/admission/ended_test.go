package admission

import (
	"context"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// What pods have that have ended is free for people, though the kubelet has not needed it since, and the ledger has it still.
func TestEndedPodsHaveNothing(t *testing.T) {
	t.Parallel()
	for _, source := range []intent.Source{"", intent.PodsAPI, intent.Kubelet, intent.APIServer} {
		a := told(t)
		a.source = source
		var pods []kubelet.Pod
		for _, name := range []string{"ends", "stays", "newest"} {
			pod := a.pending(name, wish{1, 1}).Pod
			if !a.admit(pod, "c", wish{1, 1}) {
				t.Fatal("not admitted")
			}
			pods = append(pods, pod)
		}
		if got := a.allocatedByStatus(); got != 6 {
			t.Errorf("source %q: %d devices are allocated, want 6", source, got)
		}
		a.remove(pods[0])
		if got := a.allocatedByStatus(); got != 4 {
			t.Errorf("source %q: one pod has ended: %d devices are allocated, want 4", source, got)
		}
		if held := len(a.coordinator.current().ledger.holders[gpus]); held != 3 {
			t.Errorf("source %q: the ledger has %d GPUs as given", source, held)
		}
		a.away, a.source = true, "" // nobody tells
		if got := a.allocatedByStatus(); got != 6 {
			t.Errorf("source %q, the kubelet is away: %d devices are allocated, want 6", source, got)
		}
	}
}

func (a *admission) allocatedByStatus() int {
	count := 0
	for _, r := range a.coordinator.current().status(kubelet.View{}, a.coordinator.ended(a.t.Context(), 0)).GetResources() {
		for _, d := range r.GetDevices() {
			if d.GetAllocated() {
				count++
			}
		}
	}
	return count
}

// Those who read the metrics do not make the kubelet work.
func TestMetricsAskNowAndThen(t *testing.T) {
	t.Parallel()
	a := told(t)
	a.source = ""
	for _, name := range []string{"one", "two"} {
		if !a.admit(a.pending(name, wish{1, 1}).Pod, "c", wish{1, 1}) {
			t.Fatal("not admitted")
		}
	}
	asked := 0
	get := a.coordinator.Get
	a.coordinator.Get = func(ctx context.Context, pod kubelet.Pod) (kubelet.View, error) {
		asked++
		return get(ctx, pod)
	}
	for range 100 {
		a.coordinator.ended(t.Context(), endedFresh)
	}
	if asked != 1 {
		t.Errorf("the kubelet was asked %d times about one pod", asked)
	}
}
