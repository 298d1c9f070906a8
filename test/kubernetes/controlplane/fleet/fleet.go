// SPDX-License-Identifier: Apache-2.0

// Package fleet simulates many nodes of a real control plane. Their kubelets are the model
// (coordination/verdict): they admit or refuse the pods bound to their nodes, update the pods' status, end
// pods after a while, and publish the pods' holdings. Another pod replaces each refused one, as with a Job.
package fleet

import (
	"container/heap"
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// Options configure a fleet.
type Options struct {
	Nodes    int
	VFs      int           // for each NIC
	Full     float64       // mean share of GPUs that pods hold from the start
	Late     time.Duration // from an admission to its report
	Restarts time.Duration // interval between restarts of kubelets; 0 for none
}

// restart is how long a kubelet is away.
const restart = 3 * time.Second

// backoff is how long a refused pod's next try waits. A Job waits ten times as long, and its pods live
// longer.
const backoff = time.Second

// Fleet is a set of nodes. Run's goroutine owns all mutable state.
type Fleet struct {
	options Options
	api     *api
	nodes   map[string]*node
	names   []string
	pods    map[types.UID]*seen
	done    func(Pod) // called for each ended pod
	due     queue
	bound   chan news
}

// seen is a pod of the fleet.
type seen struct {
	node   *node
	result Pod
}

// news is a pod in an event.
type news struct {
	pod *v1.Pod
	at  time.Time
}

// Run runs the nodes until ctx is done. It returns after all its goroutines.
func (f *Fleet) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	written := f.api.start(ctx)
	factory := informers.NewSharedInformerFactory(f.api.client, 0)
	informer := factory.Core().V1().Pods().Informer()
	if _, err := informer.AddEventHandler(f.handler(ctx)); err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	factory.Start(ctx.Done())
	if f.options.Restarts > 0 {
		f.at(f.options.Restarts, func() { f.restart(0) })
	}
	f.loop(ctx)
	cancel()
	factory.Shutdown()
	return written()
}

// handler forwards bound pods, and pods to delete.
func (f *Fleet) handler(ctx context.Context) cache.ResourceEventHandler {
	tell := func(object any) {
		pod := object.(*v1.Pod)
		comes, goes := pod.Status.Phase == v1.PodPending, pod.DeletionTimestamp != nil
		if pod.Spec.NodeName != "" && (comes || goes) {
			select {
			case f.bound <- news{pod, time.Now()}:
			case <-ctx.Done():
			}
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: tell, UpdateFunc: func(_, now any) { tell(now) }}
}

// loop handles one event after the other.
func (f *Fleet) loop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(f.due.wait(time.Now()))
		select {
		case <-ctx.Done():
			return
		case told := <-f.bound:
			if told.pod.DeletionTimestamp != nil {
				f.evict(told.pod)
			} else {
				f.receive(told)
			}
		case <-timer.C:
			for len(f.due) > 0 && !f.due[0].at.After(time.Now()) {
				heap.Pop(&f.due).(task).do()
			}
		}
	}
}

// at does something after a while.
func (f *Fleet) at(after time.Duration, do func()) {
	heap.Push(&f.due, task{time.Now().Add(after), do})
}

// receive handles a bound pod, once.
func (f *Fleet) receive(told news) {
	pod := told.pod
	n := f.nodes[pod.Spec.NodeName]
	if n == nil || f.pods[pod.UID] != nil {
		return
	}
	f.pods[pod.UID] = &seen{node: n, result: Pod{
		Job: pod.Labels[jobKey], UID: pod.UID, Try: try(pod), Scheduler: pod.Spec.SchedulerName, Node: n.name,
		Bound: told.at,
	}}
	if n.down {
		n.waiting = append(n.waiting, pod)
		return
	}
	f.admit(n, pod)
}

// admit runs a pod for its lifetime, or refuses it.
func (f *Fleet) admit(n *node, pod *v1.Pod) {
	s := f.pods[pod.UID]
	v := n.admit(pod, s.result.Bound)
	s.result.Verdict = v
	f.done(s.result)
	if !v.Admitted {
		f.api.phase(pod, v1.PodFailed, "TopologyAffinityError", v.Reason)
		if again := nextTry(pod); again != nil {
			f.at(backoff, func() { f.api.again(again) })
		}
		return
	}
	f.api.phase(pod, v1.PodRunning, "", "")
	if life := lifetime(pod); life > 0 {
		f.at(life, func() {
			if n.end(pod.UID) {
				f.api.phase(pod, v1.PodSucceeded, "", "")
			}
		})
	}
	if !n.late {
		n.late = true
		f.at(f.options.Late, func() { f.report(n) })
	}
}

// evict ends and removes a deleted pod.
func (f *Fleet) evict(pod *v1.Pod) {
	n := f.nodes[pod.Spec.NodeName]
	if n == nil {
		return
	}
	if n.down {
		f.at(restart, func() { f.evict(pod) })
		return
	}
	n.end(pod.UID)
	f.api.remove(pod)
}

func (f *Fleet) report(n *node) {
	n.late = false
	f.api.publish(n.name, n.report())
}

// restart stops a kubelet for a while, then the next one.
func (f *Fleet) restart(i int) {
	n := f.nodes[f.names[i%len(f.names)]]
	n.down = true
	f.at(restart, func() {
		for _, pod := range n.back() {
			f.admit(n, pod)
		}
	})
	f.at(f.options.Restarts, func() { f.restart(i + 1) })
}
