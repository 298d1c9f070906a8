// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

func TestExplain(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		a := newAdmission(t, "oci-mi300x-derived", 4, false, seed)
		for i := range 3 {
			a.mustAdmit(a.add(fmt.Sprint("pod-", i)), "worker", wish{2, 2})
		}
		for i := range 3 { // the newest too, of which no look has told
			pod := kubelet.Pod{Namespace: "team", Name: fmt.Sprint("pod-", i)}
			decisions, err := a.coordinator.Explain(t.Context(), "team", pod.Name, "worker")
			if err != nil || len(decisions) != 2 {
				t.Fatalf("%s: %v, %v", pod.Name, decisions, err)
			}
			for _, d := range decisions {
				held := a.pods[pod]["worker"][d.GetResource()]
				if !device.SameSet(d.GetAllocated(), held) || d.GetContainer().GetPod() != pod.Name ||
					d.GetRefusal() != "" {
					t.Errorf("%s holds %v: %v", pod.Name, held, d)
				}
				if d.GetAsked() && (!device.SameSet(d.GetChosen(), held) || len(d.GetPairs()) != 2 ||
					d.GetPairs()[0].GetDistance() != "PIX" || d.GetKnown() == "") {
					t.Errorf("%s was asked for: %v", pod.Name, d)
				}
			}
			first := decisions[0]
			if other := map[string]string{gpus: vfs, vfs: gpus}[first.GetResource()]; first.GetAsked() &&
				!device.SameSet(first.GetPlanned()[other].GetIds(), decisions[1].GetAllocated()) {
				t.Errorf("planned %v, then allocated %v", first.GetPlanned(), decisions[1].GetAllocated())
			}
			taken := uint32(0)
			for _, o := range first.GetOptions() {
				taken += o.GetTakenGpus()
				if o.GetTakenGpus() > o.GetFreeGpus() || o.GetTakenVfs() > o.GetFreeVfs() {
					t.Errorf("more taken than free: %v", o)
				}
			}
			if first.GetAsked() && taken != 2 {
				t.Errorf("%d GPUs taken by switch: %v", taken, first.GetOptions())
			}
		}
	}
}

// A decision names the functions that have failed, beside degraded ones: neither were a choice.
func TestFailedIsExplained(t *testing.T) {
	t.Parallel()
	a := newAdmission(t, "oci-mi300x-derived", 2, false, 1)
	tree := a.coordinator.current().tree
	of := func(d device.Device) string {
		function, _ := tree.Device(d.Address)
		return function.Function().String()
	}
	failed := of(a.all[vfs][0])
	for i, d := range a.all[vfs] {
		if of(d) == failed {
			a.all[vfs][i].Healthy, a.all[vfs][i].Reason = false, "link_downed increased"
		}
	}
	a.freeAll()
	a.free[vfs] = slices.DeleteFunc(a.free[vfs], func(d device.Device) bool { return !d.Healthy })
	a.announce()
	a.mustAdmit(a.add("pod"), "worker", wish{1, 1})
	decisions, err := a.coordinator.Explain(t.Context(), "team", "pod", "worker")
	if err != nil || len(decisions) == 0 {
		t.Fatal(decisions, err)
	}
	for _, d := range decisions {
		if d.GetAsked() && !strings.Contains(d.GetReason(), "; failed: "+failed) {
			t.Errorf("the reason is %q", d.GetReason())
		}
	}
}

func TestNothingToExplain(t *testing.T) {
	t.Parallel()
	a := newAdmission(t, "oci-mi300x-derived", 1, false, 1)
	fails := func(namespace, pod, container, want string) {
		t.Helper()
		_, err := a.coordinator.Explain(t.Context(), namespace, pod, container)
		if err == nil || !strings.Contains(err.Error()+"$", want) {
			t.Errorf("%s/%s/%s: %v, want %q", namespace, pod, container, err, want)
		}
	}
	record := func(namespace, pod, container, id string) {
		c := &kubelet.Container{Pod: kubelet.Pod{Namespace: namespace, Name: pod}, Name: container}
		allocate := &api.Decision{Container: encodeOwner(c, ""), Resource: gpus, Allocated: []string{id}}
		a.coordinator.history.recordAllocate(allocate)
	}
	a.admit(a.add("train"), "worker", wish{1, 1})
	a.add("idle")
	a.coordinator.history.isHeld = nil // as after a boot
	for i := range maxDecisions {
		other := &api.Decision{Resource: gpus, Allocated: []string{fmt.Sprint("other-", i)}}
		a.coordinator.history.recordAllocate(other)
	}
	fails("team", "gone", "", "the kubelet of this node runs no such pod")
	fails("", "gone", "", "the kubelet of this node runs no such pod of namespace default")
	fails("team", "idle", "", "has no device of these plugins")
	fails("team", "idle", "c", "explain container c of pod team/idle: the pod has no device")
	fails("team", "train", "x",
		"explain container x of pod team/train: unknown container; the known containers of this pod are worker")
	fails("team", "train", "", "older than the last 256 decisions")
	a.admit(a.add("two"), "sidecar", wish{1, 0})
	record("team", "two", "init", "z")
	fails("team", "two", "x", "containers of this pod are init, sidecar$") // of the kubelet and of a decision
	a.away = true
	fails("team", "train", "", "unknown whether the pod runs (kubelets report single pods from 1.34 on): "+
		"PodResources is away; for pods with")
	fails("team", "two", "x", "containers of this pod are init$")
	record("a", "twin", "c", "x")
	record("b", "twin", "c", "y")
	fails("", "twin", "", "NAMESPACE/twin")
	if found, err := a.coordinator.Explain(t.Context(), "b", "twin", ""); err != nil ||
		!slices.Equal(found[0].GetAllocated(), []string{"y"}) {
		t.Errorf("twin of b: %v, %v", found, err)
	}
}

// What was decided for a container that lives is told by the next server too, however much was decided since,
// and word for word.
func TestExplainLasts(t *testing.T) {
	t.Parallel()
	a := untold(t)
	for i := range 2 {
		a.mustAdmit(a.add(fmt.Sprint("pod-", i)), "worker", wish{2, 2})
	}
	explain := func() (told []*api.Decision) {
		for _, name := range []string{"pod-0", "pod-1"} {
			decisions, err := a.coordinator.Explain(t.Context(), "team", name, "")
			if err != nil || len(decisions) != 2 {
				t.Fatalf("%s: %v, %v", name, decisions, err)
			}
			told = append(told, decisions...)
		}
		return told
	}
	before := explain()
	for i := range 2 * maxDecisions {
		other := &api.Decision{Resource: gpus, Allocated: []string{fmt.Sprint("other-", i)}}
		a.coordinator.history.recordAllocate(other)
	}
	a.crashes, a.random = true, rand.New(zeros{})
	a.maybeCrash()
	if diff := cmp.Diff(before, explain(), protocmp.Transform()); diff != "" {
		t.Errorf("the next server tells (-before +after):\n%s", diff)
	}
	if all := a.coordinator.Recent(); len(all) != len(before) {
		t.Errorf("%d decisions are known", len(all))
	}
}

// zeros is a random source whose numbers are all 0.
type zeros struct{}

func (zeros) Uint64() uint64 { return 0 }

// A decision that cannot be read is no reason to lose the others' devices.
func TestDecisionsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	var log decisionLog
	for _, saved := range [][]savedDecision{
		{{Message: []byte("{")}},
		{{Message: []byte("{}"), Allocated: []string{"x"}}},
		{{Message: []byte(`{"resource": "amd.com/gpu"}`)}},
		make([]savedDecision, maxDecisions+1),
	} {
		if err := log.restore(saved); err == nil || len(log.all()) > 0 {
			t.Errorf("%d decisions: %v", len(saved), err)
		}
	}
}

// A refused Allocate is the end of the question that it follows, not another decision.
func TestExplainOfARefusal(t *testing.T) {
	t.Parallel()
	a := newAdmission(t, "oci-mi300x-derived", 1, false, 1)
	a.source, a.coordinator.Alignment = intent.PodsAPI, intent.Required
	a.keepCheckpoint()
	pod := a.add("pod")
	a.tell(pod, container{"worker", wish{1, 2}}) // no switch has two VFs
	ids, _ := a.ask(gpus, 0, 1)
	if _, refusal := a.allocated(gpus, ids); refusal == "" {
		t.Fatal("not refused")
	}
	decisions, err := a.coordinator.Explain(t.Context(), "team", "pod", "")
	if err != nil || len(decisions) != 1 || !decisions[0].GetAsked() || decisions[0].GetRefusal() == "" ||
		len(decisions[0].GetPairs()) != 2 {
		t.Errorf("decisions %v, %v", decisions, err)
	}
}

// A query changes nothing: the decision for an unknown container stays one after somebody asked about the pod
// that has the devices now.
func TestExplainKeepsTheHistory(t *testing.T) {
	a := newAdmission(t, "oci-mi300x-derived", 4, false, 1)
	a.away = true // no source reports the owner
	id := a.all[gpus][0].ID
	a.allocated(gpus, []string{id})
	a.away = false
	later := a.add("later")
	a.pods[later]["c"] = kubelet.Devices{gpus: {id}}
	if _, err := a.coordinator.Explain(t.Context(), "team", "later", ""); err != nil {
		t.Fatal(err)
	}
	if after := a.coordinator.Recent(); len(after) != 1 || after[0].GetContainer() != nil {
		t.Errorf("a query has changed the decisions: %v", after)
	}
}

// A decision is not held any more once another pod has the device, also if no decision is known for that pod.
func TestHeldByAnotherPod(t *testing.T) {
	t.Parallel()
	a := told(t)
	first, had := a.start("first", gpus)
	heldAfterQuestion := func(asker string) bool {
		a.pending(asker, wish{1, 0})
		a.ask(gpus, 0, 1)
		decisions, err := a.coordinator.Explain(t.Context(), "team", "first", "")
		if err != nil || len(decisions) != 1 {
			t.Fatal(decisions, err)
		}
		held := decisions[0].GetHeld()
		if all := a.coordinator.Recent(); all[0].GetHeld() != held {
			t.Errorf("held among all decisions: %t, among those of its pod: %t", !held, held)
		}
		return held
	}
	if !heldAfterQuestion("beside") {
		t.Error("its pod has the device, and it is not held")
	}
	a.remove(first)
	other := a.pending("other", wish{1, 0}).Pod
	a.pods[other]["c"] = kubelet.Devices{gpus: had}
	a.keep(other)
	a.free[gpus] = slices.DeleteFunc(a.free[gpus], func(d device.Device) bool { return d.ID == had[0] })
	if heldAfterQuestion("later") {
		t.Error("another pod has the device, and it is held")
	}
}
