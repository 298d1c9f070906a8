// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// The kubelet asks for devices of pod a, rejects the pod without an Allocate that reaches the coordinator,
// and allocates for pod b without a question: other devices, or the same.
func TestAllocateAfterLostQuestion(t *testing.T) {
	t.Parallel()
	pod := func(name string, alignment intent.Alignment) intent.Pod {
		return intent.Pod{
			Pod: kubelet.Pod{Namespace: "team", Name: name}, UID: name, Created: time.Unix(1, 0),
			Alignment:  alignment,
			Containers: []intent.Container{{Name: "c", Requests: map[string]int{gpus: 1, vfs: 1}}},
		}
	}
	for _, same := range []bool{false, true} {
		a := newAdmission(t, "oci-mi300x-derived", 1, false, 1)
		c := a.coordinator
		c.MayList = false
		if same { // no free VF on the switch of the first GPU
			_, a.all[vfs] = a.split(a.all[vfs], a.all[gpus][0].Address)
			a.announce()
		}
		a.source, a.specs = intent.PodsAPI, []intent.Pod{pod("a", intent.Required)}
		var available []string
		for i, d := range a.all[gpus][:4] {
			if i == 0 || !same {
				available = append(available, d.ID)
			}
		}
		chosen, _ := a.prefer(gpus, available, nil, 1)
		a.specs = []intent.Pod{pod("b", "")}
		a.now = a.now.Add(time.Second)
		ids := chosen
		if !same {
			ids = []string{available[3]}
			if chosen[0] == available[3] {
				ids = []string{available[2]}
			}
		}
		taken, err := c.Allocated(t.Context(), gpus, ids)
		if err != nil || taken.GetRefusal() != "" {
			t.Error("same devices:", same, err, taken.GetRefusal())
		}
		if to := taken.GetContainer(); to.GetPod() != "b" {
			t.Errorf("same devices %t: the recipient is %v, not pod b", same, to)
		}
		for _, name := range []string{"a", "b"} {
			decisions, _ := c.Explain(t.Context(), "team", name, "")
			for _, d := range decisions {
				if name == "a" && len(d.GetAllocated()) > 0 {
					t.Errorf("same devices %t: explain a: it has %v, which are pod b's", same, d.GetAllocated())
				}
			}
			if name == "b" && len(decisions) == 0 {
				t.Errorf("same devices %t: explain b: no decision", same)
			}
		}
	}
}

// A plugin fails the Allocate of the second half of a container: the kubelet rejects the pod. The next
// Allocate, at once and without a question, is of another container.
func TestAllocateAfterAFailedOne(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct {
		resource string
		failed   []string
	}{
		"of the second half":                  {vfs, []string{"0000:0c:00.1"}},
		"of the first half, after its report": {gpus, []string{"0000:11:00.0"}},
	} {
		a := newAdmission(t, "oci-mi300x-derived", 1, false, 1)
		a.keepCheckpoint()
		c := a.coordinator
		a.allocated(gpus, []string{"0000:11:00.0"})
		_ = c.Returned(of.resource, of.failed, true)
		if holder := c.holderOf(gpus, "0000:11:00.0"); holder != "" {
			t.Errorf("%s: the rejected container holds the GPU: %s", name, holder)
		}
		a.allocated(vfs, []string{"0000:0c:00.1"})
		if to := c.current().open.Container; !to.Lacks(gpus) {
			t.Errorf("%s: the container of the VF has the rejected container's GPU: %v", name, to.Devices)
		}
	}
}
