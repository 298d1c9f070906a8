// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/test/model"
	"github.com/tandem-k8s/tandem/test/simulation/seeds"
	"github.com/tandem-k8s/tandem/topology"
)

// records are the kubelet's answers about its pods. Faults are set between two calls of the kubelet, because
// the coordinator reads several records at the same time.
type records struct {
	kubelet *model.Kubelet
	server  bool // the source of requests is the API server, which can be behind

	mu     sync.Mutex
	absent map[string]bool          // records without an answer
	late   map[string]time.Duration // records with a late answer
	behind []corev1.Pod             // pods of an API server that is behind; nil if the API server is not
}

// Records of the kubelet.
const (
	listRecord = "List"
	getRecord  = "Get"
	podsRecord = "the list of pods"
)

var errAway = errors.New("away")

// answer waits for a record, or returns an error if the record has no answer.
func (r *records) answer(ctx context.Context, record string) error {
	r.mu.Lock()
	absent, late := r.absent[record], r.late[record]
	r.mu.Unlock()
	if late > 0 {
		seeds.Pause(ctx, late)
	}
	if absent {
		return errAway
	}
	return ctx.Err()
}

// List returns all pods with devices.
func (r *records) List(ctx context.Context) (kubelet.View, error) {
	if err := r.answer(ctx, listRecord); err != nil {
		return kubelet.View{}, err
	}
	return r.kubelet.List(), nil
}

// Get returns one pod.
func (r *records) Get(ctx context.Context, pod kubelet.Pod) (kubelet.View, error) {
	if err := r.answer(ctx, getRecord); err != nil {
		return kubelet.View{}, err
	}
	return r.kubelet.Get(pod), nil
}

// AllocatableCPUs returns no CPUs: the static CPU policy is off.
func (*records) AllocatableCPUs(context.Context) (topology.CPUSet, error) { return nil, nil }

// pods returns the pods of a source of intent.
func (r *records) pods(ctx context.Context) ([]corev1.Pod, error) {
	if err := r.answer(ctx, podsRecord); err != nil {
		return nil, err
	}
	r.mu.Lock()
	behind := r.behind
	r.mu.Unlock()
	if behind != nil {
		return behind, nil
	}
	told, ready := r.kubelet.Tell()
	if !ready {
		return nil, errAway
	}
	pods := make([]corev1.Pod, 0, len(told))
	for i := range told {
		pods = append(pods, describe(&told[i]))
	}
	return pods, nil
}

// heal ends all faults.
func (r *records) heal() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.absent)
	clear(r.late)
	r.behind = nil
}

// disturb begins or ends a fault of a record, and describes the fault.
func (r *records) disturb(random *rand.Rand) (what string) {
	record := []string{listRecord, getRecord, podsRecord}[random.IntN(3)]
	if r.server && record == podsRecord && random.IntN(2) == 0 {
		return r.fallBehind()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.absent[record] || r.late[record] > 0 {
		delete(r.absent, record)
		delete(r.late, record)
		return ""
	}
	if random.IntN(3) == 0 {
		r.late[record] = time.Duration(1+random.IntN(80_000)) * time.Microsecond
		return record + " is late"
	}
	r.absent[record] = true
	return record + " has no answer"
}

// fallBehind makes the API server show its pods of this moment, or all pods again.
func (r *records) fallBehind() (what string) {
	pods, err := r.pods(context.Background())
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil || r.behind != nil {
		r.behind = nil
		return ""
	}
	r.behind = pods
	return "the API server falls behind"
}

// describe returns a pod in the form of the API.
func describe(p *intent.Pod) corev1.Pod {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: p.Namespace, Name: p.Name, UID: types.UID(p.UID),
		CreationTimestamp: metav1.Time{Time: p.Created},
	}}
	if p.Alignment != "" {
		pod.Annotations = map[string]string{intent.AlignmentKey: string(p.Alignment)}
	}
	if p.Started {
		pod.Status.StartTime = &metav1.Time{Time: p.Created}
	}
	always := corev1.ContainerRestartPolicyAlways
	for _, c := range p.Containers {
		requests := corev1.ResourceList{}
		for name, count := range c.Requests {
			requests[corev1.ResourceName(name)] = *resource.NewQuantity(int64(count), resource.DecimalSI)
		}
		container := corev1.Container{Name: c.Name}
		container.Resources.Limits, container.Resources.Requests = requests, requests
		switch c.Role {
		case intent.Sidecar:
			container.RestartPolicy = &always
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, container)
		case intent.Init:
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, container)
		default:
			pod.Spec.Containers = append(pod.Spec.Containers, container)
		}
	}
	return pod
}
