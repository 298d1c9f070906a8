// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// scarce leaves two VFs on NUMA node 0 beside its four GPUs, so that the kubelet asks nothing for a container
// that wants both, and returns what it will give.
func scarce(t *testing.T, source intent.Source) (*admission, map[string][]string) {
	t.Helper()
	a := told(t)
	a.source = source
	greedy := a.pending("greedy", wish{0, 14}).Pod
	a.take(greedy, vfs, ids(a.aligned(vfs, []int{0}))[2:])
	a.keep(greedy)
	for i := range a.specs {
		a.specs[i].Started = true
	}
	return a, map[string][]string{gpus: ids(a.aligned(gpus, []int{0})), vfs: ids(a.aligned(vfs, []int{0}))}
}

// A pod that may have any pairs is not refused for the annotation of another one that may be asking as well:
// one that was just refused, one that the kubelet has not seen yet, or one that waits behind it.
func TestNobodyIsRefusedForAnother(t *testing.T) {
	t.Parallel()
	for _, source := range []intent.Source{intent.PodsAPI, intent.Kubelet} {
		for _, order := range [][]string{{gpus, vfs}, {vfs, gpus}} {
			for _, age := range []time.Duration{time.Hour, -time.Hour} {
				a, given := scarce(t, source)
				strict := intent.Pod{
					Pod: kubelet.Pod{Namespace: "other", Name: "strict"}, UID: "uid-strict", Created: a.now.Add(-age),
					Alignment:  intent.Required,
					Containers: []intent.Container{{Name: "c", Requests: a.requests(wish{4, 2})}},
				}
				a.specs = append(a.specs, strict)
				lax := a.pending("lax", wish{4, 2}).Pod
				for i := range a.specs[1:] {
					a.specs[1+i].Started = false
				}
				for _, name := range order {
					if refusal := a.take(lax, name, given[name]); refusal != "" {
						t.Errorf("%s, %v, the other one %s older: %s", source, order, age, refusal)
						break
					}
				}
			}
		}
	}
}

// A pod that asks for it is refused, though it is given everything without a question.
func TestStrictPodIsRefused(t *testing.T) {
	t.Parallel()
	for _, source := range []intent.Source{intent.PodsAPI, intent.Kubelet} {
		for _, order := range [][]string{{gpus, vfs}, {vfs, gpus}} {
			a, given := scarce(t, source)
			strict := a.pending("strict", wish{4, 2})
			strict.Alignment = intent.Required
			refusals := 0
			for _, name := range order {
				if a.take(strict.Pod, name, given[name]) != "" {
					refusals++
					break
				}
			}
			if refusals == 0 {
				t.Errorf("%s, %v: not refused", source, order)
			}
			held := a.coordinator.heldOf(vfs)
			if slices.ContainsFunc(given[vfs], func(id string) bool { return slices.Contains(held, id) }) &&
				order[1] == vfs {
				t.Errorf("%s, %v: refused VFs count as given", source, order)
			}
		}
	}
}

// An Allocate whose plugin no longer waits is not refused: the container has the devices, and they count as
// held.
func TestLateAllocateOfStrictPodIsRecorded(t *testing.T) {
	t.Parallel()
	for _, order := range [][]string{{gpus, vfs}, {vfs, gpus}} {
		a, given := scarce(t, intent.PodsAPI)
		strict := a.pending("strict", wish{4, 2})
		strict.Alignment = intent.Required
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for _, name := range order {
			taken, err := a.coordinator.Allocated(ctx, name, given[name])
			if err != nil || taken.GetRefusal() != "" {
				t.Errorf("%v, %s: %q, %v", order, name, taken.GetRefusal(), err)
			}
			held := a.coordinator.heldOf(name)
			for _, id := range given[name] {
				if !slices.Contains(held, id) {
					t.Errorf("%v: %s %s is not held", order, name, id)
				}
			}
		}
		if c := a.coordinator.current().open.Container; c.Lacks(gpus) || c.Lacks(vfs) {
			t.Errorf("%v: the container has %v", order, c.Devices)
		}
	}
}
