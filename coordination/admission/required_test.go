// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/topology"
)

func TestASchedulersChoiceIsHonoured(t *testing.T) {
	a := told(t)
	first := a.pending("first", wish{1, 1})
	first.Chosen = []string{"0000:46:00.0"}
	vf, why := a.serve(first.Pod, vfs, 0, 1) // the other half first
	wantWords(t, why, "team/first/c wants 1 amd.com/gpu, 1 nvidia.com/vf; kubelet asked first for ",
		"told by pods-api",
		"1 devices as the scheduler chose", "1 PIX")
	gpu, _ := a.serve(first.Pod, gpus, 0, 1)
	if gpu[0] != "0000:46:00.0" || !strings.HasPrefix(vf[0], "0000:41:") {
		t.Errorf("got %v %v", gpu, vf)
	}
	a.keep(first.Pod)

	second := a.pending("second", wish{2, 0})
	second.Chosen = []string{"0000:5d:00.0", "0000:46:00.0", "0000:8b:00.0", "GPU-unknown"}
	gpu, why = a.ask(gpus, 0, 2)
	wantWords(t, why, "1 devices as the scheduler chose", "0000:46:00.0 is held by team/first/c",
		"0000:8b:00.0 is not among what the kubelet offers", "GPU-unknown is no device")
	if !slices.Contains(gpu, "0000:5d:00.0") {
		t.Errorf("got %v", gpu)
	}
}

// TestRefusalOnAFlatMachine: a machine without switches has none whose VFs could be counted.
func TestRefusalOnAFlatMachine(t *testing.T) {
	t.Parallel()
	a := newAdmission(t, "nv-h200-vm-flat", 0, true, 1)
	gpu := topology.Address{Bus: 5}
	near, owners := describeNear(a.coordinator.current().books(), gpu, nil)
	if near != "the GPU is on no switch (pci0000:00)" || len(owners) > 0 {
		t.Errorf("%q, held by %v", near, owners)
	}
}

// A pod is refused as soon as it is known that its pairs cannot be on one switch each, whichever half comes
// first: at its first half if a source tells of it.
func TestRequiredAlignment(t *testing.T) {
	t.Parallel()
	eachOrder(t, []intent.Source{"", intent.PodsAPI}, func(t *testing.T, a *admission, order []string) {
		a.withoutNearVFs()
		strict := a.pending("strict", wish{4, 4})
		strict.Alignment = intent.Required
		asks, half := intent.Relaxation, order[0]
		if a.source == "" {
			a.coordinator.Alignment = intent.Required
			asks, half = "the plugins' flag --alignment=required asks that of every pod", order[1]
		}
		refusal, at := a.refusalOf(strict.Pod, order)
		wantWords(t, refusal, "refuse 4 "+half, "only 3 of 4 pairs", "GPU 0000:11:00.0", "NODE", "switch 0000:",
			"0 of 4 VFs are free, the rest is held")
		if at != half || strings.Contains(refusal, "greedy") || !strings.HasSuffix(refusal, " ("+asks+")") {
			t.Errorf("refused at %s, want %s, without another pod's name, with %q: %q", at, half, asks, refusal)
		}
		if told, err := a.coordinator.Explain(t.Context(), "", "strict", ""); a.source != "" &&
			(err != nil || !strings.HasSuffix(told[len(told)-1].GetRefusal(), "held by team/greedy/c")) {
			t.Errorf("explain does not tell who holds the rest: %v, %v", told, err)
		}
		a.remove(strict.Pod)
		easy := a.pending("easy", wish{1, 1})
		easy.Alignment = intent.Required
		for _, name := range order {
			a.serve(easy.Pod, name, 0, 1)
		}
	})
}

// The source has let the pod's annotation count.
func TestPreferredAlignmentStandsAboveTheFlag(t *testing.T) {
	a := told(t)
	a.coordinator.Alignment = intent.Required
	lax := a.pending("lax", wish{4, 2}) // two GPUs have no VF of their own
	lax.Alignment = intent.Preferred
	a.serve(lax.Pod, gpus, 0, 4)
	a.serve(lax.Pod, vfs, 0, 2)
	strict := a.pending("strict", wish{4, 0}) // no pair at all
	a.serve(strict.Pod, gpus, 1, 4)
}

// scarce leaves two VFs on NUMA node 0 beside its four GPUs, so that the kubelet asks nothing for a container
// that wants both, and returns what it will give.
func (a *admission) scarce() map[string][]string {
	greedy := a.pending("greedy", wish{0, 14}).Pod
	a.take(greedy, vfs, ids(a.aligned(vfs, []int{0}))[2:])
	a.run(greedy)
	return map[string][]string{gpus: ids(a.aligned(gpus, []int{0})), vfs: ids(a.aligned(vfs, []int{0}))}
}

// A pod that may have any pairs is not refused for the annotation of another one that may be asking as well:
// one that was just refused, one that the kubelet has not seen yet, or one that waits behind it.
func TestNobodyIsRefusedForAnother(t *testing.T) {
	t.Parallel()
	for _, age := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(fmt.Sprint("the other one older by ", age), func(t *testing.T) {
			eachOrder(t, certain, func(t *testing.T, a *admission, order []string) {
				given := a.scarce()
				a.specs = append(a.specs, intent.Pod{
					Pod: kubelet.Pod{Namespace: "other", Name: "strict"}, UID: "uid-strict", Created: a.now.Add(-age),
					Alignment:  intent.Required,
					Containers: []intent.Container{{Name: "c", Requests: a.requests(wish{4, 2})}},
				})
				lax := a.pending("lax", wish{4, 2}).Pod
				for i := range a.specs[1:] {
					a.specs[1+i].Started = false
				}
				for _, name := range order {
					if refusal := a.take(lax, name, given[name]); refusal != "" {
						t.Fatal(refusal)
					}
				}
			})
		})
	}
}

// A pod that asks for it is refused, though it is given everything without a question.
func TestStrictPodIsRefused(t *testing.T) {
	t.Parallel()
	eachOrder(t, certain, func(t *testing.T, a *admission, order []string) {
		given := a.scarce()
		strict := a.pending("strict", wish{4, 2})
		strict.Alignment = intent.Required
		refuses := func(name string) bool { return a.take(strict.Pod, name, given[name]) != "" }
		if !refuses(order[0]) && !refuses(order[1]) {
			t.Error("not refused")
		}
		for _, id := range a.coordinator.heldOf(vfs) {
			if order[1] == vfs && slices.Contains(given[vfs], id) {
				t.Errorf("the refused VF %s counts as given", id)
			}
		}
	})
}

// withoutNearVFs lets a started pod take all VFs of the first GPU's switch: a pod with four pairs then has
// one that is apart.
func (a *admission) withoutNearVFs() {
	greedy := a.pending("greedy", wish{0, 4})
	var near []string
	for _, d := range a.all[vfs] {
		if strings.HasPrefix(d.ID, "0000:0c:") {
			near = append(near, d.ID)
		}
	}
	a.ask(vfs, 0, 4)
	a.take(greedy.Pod, vfs, near)
	a.keep(greedy.Pod)
	a.specs[0].Started = true
}

// refusalOf asks for four devices of each kind for a pod, and returns the refusal and its half.
func (a *admission) refusalOf(pod kubelet.Pod, order []string) (refusal, at string) {
	for _, name := range order {
		ids, _ := a.ask(name, 0, 4)
		if refusal := a.take(pod, name, ids); refusal != "" {
			return refusal, name
		}
	}
	return "", ""
}

// Two pods wait, by the API server, with different requests, and PodResources is not listed: the asker is not
// certain. A requirement of both is a requirement of the asker; a requirement of one is none.
func TestRequiredByEveryCandidate(t *testing.T) {
	for _, tc := range []struct {
		name          string
		policy        intent.Alignment
		strict, other intent.Alignment
		otherIsOlder  bool
		refuses       bool
	}{
		{"by the node", intent.Required, "", "", false, true},
		{"by the node, the other is likelier", intent.Required, "", "", true, true},
		{"by both pods", "", intent.Required, intent.Required, false, true},
		{"by both pods, the other is likelier", "", intent.Required, intent.Required, true, true},
		{"by the node, and both lift it", intent.Required, intent.Preferred, intent.Preferred, false, false},
		{"by nobody", "", "", "", true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := told(t)
			a.source, a.unlisted = intent.PodsAPI, true
			a.coordinator.Alignment = tc.policy
			a.withoutNearVFs()
			a.pending("strict", wish{4, 4})
			a.pending("other", wish{4, 1})
			strict, other := &a.specs[1], &a.specs[2]
			strict.Started = false // both wait
			strict.Alignment, other.Alignment = tc.strict, tc.other
			if tc.otherIsOlder {
				other.Created = strict.Created.Add(-time.Hour)
			}
			if refusal, _ := a.refusalOf(strict.Pod, bothOrders[0]); (refusal != "") != tc.refuses {
				t.Errorf("refusal %q, want one: %t; GPUs %v, VFs %v", refusal, tc.refuses,
					a.pods[strict.Pod]["c"][gpus], a.pods[strict.Pod]["c"][vfs])
			}
		})
	}
}

// TestNobodyIsRefusedOnAPrediction: VFs have no NUMA node, and the kubelet's Topology Manager is unknown. The
// NUMA nodes of the GPUs are only predicted, and nobody is refused at the VFs.
func TestNobodyIsRefusedOnAPrediction(t *testing.T) {
	a := newAdmission(t, "oci-mi300x-derived", 4, true, 1)
	a.keepCheckpoint()
	a.source = intent.PodsAPI
	near := ids(a.all[vfs][:16])
	greedy := a.pending("greedy", wish{0, 16})
	a.prefer(vfs, ids(a.free[vfs]), nil, 16)
	a.take(greedy.Pod, vfs, near)
	a.run(greedy.Pod)
	strict := a.pending("strict", wish{1, 1})
	strict.Alignment = intent.Required
	chosen, _ := a.prefer(vfs, ids(a.free[vfs]), nil, 1)
	if refusal := a.take(strict.Pod, vfs, chosen); refusal != "" {
		t.Error(refusal)
	}
}
