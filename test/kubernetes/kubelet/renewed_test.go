// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/node"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/rig"
)

// renew deletes pods and creates them again at once, as a StatefulSet or a training job does: each with its
// name and a UID of its own. They are judged as any other.
func renew(c *chaos) func() {
	if len(c.pods) == 0 {
		c.judge(c.next(&shape{app: []want{{2, 2}}}))
	}
	for range min(len(c.pods), 1+c.random.IntN(3)) {
		i := c.random.IntN(len(c.pods))
		old := c.pods[i]
		c.load.depart(i)
		if !c.settle(false) || !c.hasRoom(old) { // devices of the pod have failed meanwhile
			continue
		}
		c.judge(c.requireSome(c.again(old)))
		c.happened()
	}
	return nothing
}

// hasRoom reports whether as many devices are free as a pod wants.
func (c *chaos) hasRoom(pod *v1.Pod) bool {
	for _, resource := range []string{c.GPU, rig.VF} {
		init, app := 0, 0
		for _, container := range pod.Spec.InitContainers {
			init = max(init, rig.AsksFor(container, resource))
		}
		for _, container := range pod.Spec.Containers {
			app += rig.AsksFor(container, resource)
		}
		if max(init, app) > c.Free(resource) {
			return false
		}
	}
	return true
}

// isWhole is for faults that take all devices of the machine.
func isWhole(c *chaos) bool {
	return c.ailing(device.Failed, rig.VF)+c.ailing(device.Failed, c.GPU) == 0
}

// again makes a pod that wants what another one wanted, under its name.
func (c *chaos) again(old *v1.Pod) *v1.Pod {
	c.admissions++
	c.began = c.Pair.Log.Len()
	return node.Pod(old.Name, old.Spec.InitContainers, old.Spec.Containers)
}

// exchange lets two jobs that have a NUMA node each end, and creates them again in the other order: each gets
// what the other one had, of which the kubelet gives all GPUs without a question. Both ask for alignment,
// which they can have.
func exchange(c *chaos) func() {
	half := shape{app: []want{{c.GPUs() / 2, c.GPUs() / 2}}}
	c.leave()
	for range 2 {
		c.judge(c.requiredNext(&half))
	}
	jobs := slices.Clone(c.pods)
	if c.Free(rig.VF) > 0 { // the next question shows who has what
		c.judge(c.next(&shape{app: []want{{0, 1}}}))
	}
	c.leave()
	slices.Reverse(jobs)
	for _, old := range jobs {
		pod := c.again(old)
		pod.Annotations = old.Annotations
		c.judge(pod)
		c.happened()
	}
	return nothing
}

func (c *chaos) requiredNext(s *shape) *v1.Pod {
	pod := c.next(s)
	pod.Annotations = map[string]string{alignment: required}
	return pod
}

// leave lets all pods leave.
func (c *chaos) leave() {
	for len(c.pods) > 0 {
		c.load.depart(0)
	}
}
