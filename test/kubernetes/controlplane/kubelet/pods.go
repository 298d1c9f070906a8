// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// pods are the node's pods, each with a goroutine that ends when the pod is gone.
type pods struct {
	kubelet *Kubelet
	synced  atomic.Bool // the API server has told of all pods
	workers sync.WaitGroup

	mu       sync.Mutex
	known    map[types.UID]*worker
	prepared []Prepared
}

// worker handles one pod, in its newest known state.
type worker struct {
	pod  *v1.Pod       // guarded by pods.mu
	news chan struct{} // capacity 1
}

// Prepared describes the preparation of a pod's claims.
type Prepared struct {
	Name    string
	Cached  bool                // prepared by an earlier kubelet; the driver was not called
	Devices map[string][]string // IDs of CDI devices, by container
	Tries   int
	At      time.Time     // time of the preparation
	Took    time.Duration // the last try
	Failed  []string      // errors of earlier attempts
}

func newPods(k *Kubelet) *pods { return &pods{kubelet: k, known: map[types.UID]*worker{}} }

// Log returns all preparations so far, including those for pods that are gone.
func (k *Kubelet) Log() []Prepared {
	k.pods.mu.Lock()
	defer k.pods.mu.Unlock()
	return slices.Clone(k.pods.prepared)
}

// active returns the pods that are not gone, whose claims are kept.
func (p *pods) active() []*v1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []*v1.Pod
	for _, w := range p.known {
		list = append(list, w.pod)
	}
	return list
}

// run follows the API server until the context ends, and waits for all workers.
func (p *pods) run(ctx context.Context) {
	factory := informers.NewSharedInformerFactoryWithOptions(p.kubelet.Client, 0,
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = "spec.nodeName=" + p.kubelet.Node
		}))
	informer := factory.Core().V1().Pods().Informer()
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{ // fails on a stopped informer
		AddFunc:    func(o any) { p.tell(ctx, o.(*v1.Pod)) },
		UpdateFunc: func(_, o any) { p.tell(ctx, o.(*v1.Pod)) },
	})
	factory.Start(ctx.Done())
	p.synced.Store(cache.WaitForCacheSync(ctx.Done(), informer.HasSynced))
	<-ctx.Done()
	factory.Shutdown()
	p.workers.Wait()
}

// tell passes a pod's newest state to its worker.
func (p *pods) tell(ctx context.Context, pod *v1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.known[pod.UID]
	if w == nil {
		w = &worker{news: make(chan struct{}, 1)}
		p.known[pod.UID] = w
		p.workers.Go(func() {
			p.work(ctx, w)
			p.mu.Lock()
			defer p.mu.Unlock()
			maps.DeleteFunc(p.known, func(_ types.UID, other *worker) bool { return other == w })
		})
	}
	w.pod = pod
	select {
	case w.news <- struct{}{}:
	default:
	}
}

func (p *pods) newest(w *worker) *v1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	return w.pod
}

// work prepares the claims of a pod, reports the pod as running, waits for its deletion, and unprepares the
// claims. It retries until success: the pod stays until then.
func (p *pods) work(ctx context.Context, w *worker) {
	told := Prepared{}
	for p.newest(w).DeletionTimestamp == nil {
		err := p.prepare(ctx, p.newest(w), &told)
		if err == nil {
			break
		}
		told.Failed = append(told.Failed, err.Error())
		if !pause(ctx) {
			return
		}
	}
	if told.Devices != nil {
		_ = Until(ctx, func() error { return p.running(ctx, p.newest(w)) })
	}
	for p.newest(w).DeletionTimestamp == nil {
		select {
		case <-w.news:
		case <-ctx.Done():
			return
		}
	}
	pod := p.newest(w)
	p.kubelet.Ending(pod)
	_ = Until(ctx, func() error { return p.kubelet.manager.UnprepareResources(ctx, pod) })
	_ = Until(ctx, func() error { return p.remove(ctx, pod) })
}

func (p *pods) prepare(ctx context.Context, pod *v1.Pod, told *Prepared) error {
	start := time.Now()
	told.Name, told.Cached = pod.Name, pod.Status.Phase == v1.PodRunning
	told.Tries++
	if err := p.kubelet.manager.PrepareResources(ctx, pod); err != nil {
		return err
	}
	told.At, told.Took = time.Now(), time.Since(start)
	told.Devices = map[string][]string{}
	for _, container := range pod.Spec.Containers {
		info, err := p.kubelet.manager.GetResources(pod, &container)
		if err != nil {
			return err
		}
		for _, device := range info.CDIDevices {
			told.Devices[container.Name] = append(told.Devices[container.Name], device.Name)
		}
	}
	p.mu.Lock()
	p.prepared = append(p.prepared, *told)
	p.mu.Unlock()
	p.kubelet.Options.Prepared(pod, told.Devices)
	return nil
}

// running writes the phase Running to a pod's status.
func (p *pods) running(ctx context.Context, pod *v1.Pod) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID},
		"status": v1.PodStatus{Phase: v1.PodRunning}})
	if err != nil {
		return err
	}
	_, err = p.kubelet.Client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch,
		metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// remove takes a pod off the API server.
func (p *pods) remove(ctx context.Context, pod *v1.Pod) error {
	err := p.kubelet.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64), Preconditions: &metav1.Preconditions{UID: &pod.UID},
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// pause waits before the next attempt; it returns false if ctx is done.
func pause(ctx context.Context) bool {
	select {
	case <-time.After(again):
		return true
	case <-ctx.Done():
		return false
	}
}
