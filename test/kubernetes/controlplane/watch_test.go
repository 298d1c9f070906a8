// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"cmp"
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// patience is how long a test waits for what has to come: far longer than it takes on a busy host.
const patience = 2 * time.Minute

// watched are the pods of a cluster as the API server tells of them.
type watched struct {
	store   cache.Store
	changed chan struct{} // holds one
}

// watch follows the pods until the test ends.
func (c *cluster) watch() *watched {
	c.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	factory := informers.NewSharedInformerFactory(c, 0)
	informer := factory.Core().V1().Pods().Informer()
	w := &watched{store: informer.GetStore(), changed: make(chan struct{}, 1)}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { w.tell() },
		UpdateFunc: func(any, any) { w.tell() },
		DeleteFunc: func(any) { w.tell() },
	})
	if err != nil {
		c.t.Fatal(err)
	}
	factory.Start(ctx.Done())
	c.t.Cleanup(func() {
		cancel()
		factory.Shutdown()
	})
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		c.t.Fatal("list pods: stopped")
	}
	return w
}

func (w *watched) tell() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// pods are all pods, the oldest first.
func (w *watched) pods() []*v1.Pod {
	var list []*v1.Pod
	for _, o := range w.store.List() {
		list = append(list, o.(*v1.Pod))
	}
	slices.SortFunc(list, func(a, b *v1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return list
}

// wait waits until the pods satisfy a condition, and tells whether they did.
func (w *watched) wait(ctx context.Context, satisfied func([]*v1.Pod) bool) bool {
	return w.waitFor(ctx, patience, satisfied)
}

func (w *watched) waitFor(ctx context.Context, limit time.Duration, satisfied func([]*v1.Pod) bool) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for !satisfied(w.pods()) {
		select {
		case <-w.changed:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// bound counts the pods that have a node.
func bound(pods []*v1.Pod) int {
	count := 0
	for _, pod := range pods {
		if pod.Spec.NodeName != "" {
			count++
		}
	}
	return count
}
