// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// A pod is not its predecessor of the same name, as StatefulSets and jobs make them: it ran on another NUMA
// node, and the kubelet gives its successor all GPUs of this one without a question.
func TestPodIsNotItsPredecessor(t *testing.T) {
	t.Parallel()
	for _, source := range []intent.Source{"", intent.PodsAPI, intent.Kubelet} {
		for _, alignment := range []intent.Alignment{"", intent.Required} {
			for _, away := range []bool{false, true} {
				a := told(t)
				a.source = source
				seen := newTallied()
				a.coordinator.Observer = seen
				train := func(uid string, node int) {
					spec := a.pending("train-0", wish{4, 4})
					spec.UID, spec.Alignment = uid, alignment
					a.uids[spec.Pod] = uid
					a.admitAllGPUs(spec.Pod, node)
					if seen.last.Outcome != Aligned {
						t.Errorf("source %q, alignment %q, PodResources away %t: %s on node %d is %s",
							source, alignment, away, uid, node, seen.last.Outcome)
					}
				}
				other := a.pending("other", wish{4, 4}).Pod
				a.admitAllGPUs(other, 0)
				train("uid-old", 1)
				small := a.pending("small", wish{0, 1}).Pod
				vf, _ := a.ask(vfs, 0, 1) // a look shows the owners
				a.take(small, vfs, vf)
				a.recordedPods[small] = a.pods[small]
				a.record()
				a.now = a.now.Add(time.Hour)
				a.remove(other)
				a.remove(kubelet.Pod{Namespace: "team", Name: "train-0"})
				a.away = away
				train("uid-new", 0)
			}
		}
	}
}

// admitAllGPUs admits a pod of four GPUs and four VFs on a NUMA node where just four GPUs are free, of which
// the kubelet does not ask.
func (a *admission) admitAllGPUs(pod kubelet.Pod, node int) {
	a.t.Helper()
	refusal := a.take(pod, gpus, ids(a.aligned(gpus, []int{node})))
	if refusal == "" {
		chosen, _ := a.ask(vfs, node, 4)
		refusal = a.take(pod, vfs, chosen)
	}
	if refusal != "" {
		a.t.Errorf("%s: %s", pod.Name, refusal)
		return
	}
	a.recordedPods[pod] = a.pods[pod]
	a.record()
}
