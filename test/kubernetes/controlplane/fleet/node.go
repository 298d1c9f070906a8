// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
	"github.com/tandem-k8s/tandem/coordination/verdict"
	"github.com/tandem-k8s/tandem/test/server"
)

// node is a node as its kubelet knows it. The fleet's loop owns it.
type node struct {
	name     string
	known    *verdict.Node
	state    *verdict.State
	history  []event
	held     map[types.UID]v1alpha1.Held // of running pods
	arrivals map[types.UID]*Arrival
	down     bool
	waiting  []*v1.Pod // arrived while the kubelet was down
	late     bool      // a report is due
}

func newNode(name string, known *verdict.Node) *node {
	return &node{
		name: name, known: known, state: known.State(nobody), held: map[types.UID]v1alpha1.Held{},
		arrivals: map[types.UID]*Arrival{},
	}
}

// nobody is the filter of present pods of an empty node.
func nobody(types.UID) bool { return false }

// admit decides on a pod as the kubelet does.
func (n *node) admit(pod *v1.Pod, bound time.Time) verdict.Verdict {
	v := n.state.Admit(pod)
	came := &Arrival{
		Name: pod.Name, UID: pod.UID, Devices: devices(pod), Scheduler: pod.Spec.SchedulerName, Bound: bound,
		Admitted: v.Admitted,
	}
	n.history = append(n.history, event{arrival: came, pod: pod})
	if v.Admitted {
		n.held[pod.UID], n.arrivals[pod.UID] = heldBy(pod.UID, v), came
	}
	return v
}

// end releases a pod's holdings, and reports whether the pod ran.
func (n *node) end(uid types.UID) bool {
	came := n.arrivals[uid]
	if came == nil {
		return false
	}
	came.Ended = time.Now()
	n.history = append(n.history, event{arrival: came, end: true})
	n.state.Remove(uid)
	delete(n.held, uid)
	delete(n.arrivals, uid)
	return true
}

// report returns the pods' holdings for publication.
func (n *node) report() []v1alpha1.Held {
	list := make([]v1alpha1.Held, 0, len(n.held))
	for _, held := range n.held {
		list = append(list, held)
	}
	slices.SortFunc(list, func(a, b v1alpha1.Held) int { return cmp.Compare(a.UID, b.UID) })
	return list
}

// back returns the pods that waited for the kubelet, in the kubelet's order: by the second of their creation
// (HandlePodAdditions in pkg/kubelet/kubelet.go).
func (n *node) back() []*v1.Pod {
	pods := n.waiting
	n.down, n.waiting = false, nil
	slices.SortStableFunc(pods, func(a, b *v1.Pod) int {
		return cmp.Compare(a.CreationTimestamp.Unix(), b.CreationTimestamp.Unix())
	})
	return pods
}

func heldBy(uid types.UID, v verdict.Verdict) v1alpha1.Held {
	held := v1alpha1.Held{UID: string(uid)}
	for _, c := range v.Containers {
		container := v1alpha1.Container{Name: c.Name, Devices: map[string]v1alpha1.Set{}}
		for resource, devices := range c.Devices {
			container.Devices[resource] = v1alpha1.SetOf(devices...)
		}
		held.Containers = append(held.Containers, container)
	}
	return held
}

func devices(pod *v1.Pod) (count int64) {
	for _, c := range pod.Spec.Containers {
		for name, quantity := range c.Resources.Limits {
			if name == server.GPU || name == server.VF {
				count += quantity.Value()
			}
		}
	}
	return count
}
