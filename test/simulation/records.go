// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	kubeletmodel "github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/test/model"
	"github.com/tandem-k8s/tandem/test/simulation/seeds"
	"github.com/tandem-k8s/tandem/topology"
)

// records are the kubelet's answers about its pods. Faults are set between two calls of the kubelet, because
// the coordinator reads several records at the same time.
type records struct {
	kubelet *model.Kubelet
	shows   bool // the source is the kubelet's server, which shows what it has until all pods are listed

	mu     sync.Mutex
	absent map[string]bool          // records without an answer
	late   map[string]time.Duration // records with a late answer
	claims map[kubelet.Pod]string   // UIDs of static pods whose mirrors pods claim to be
	tenant []corev1.Pod             // more pods of the list
}

// Records of the kubelet.
const (
	listRecord = "List"
	getRecord  = "Get"
	podsRecord = "Pods"
)

// What happens to records.
const (
	isAbsent = "has no answer"
	isLate   = "is late"
	isBack   = "answers"
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

// Life identifies the kubelet.
func (r *records) Life() string { return r.kubelet.Get(kubelet.Pod{}).Life }

// AllocatableCPUs returns no CPUs: the static CPU policy is off.
func (*records) AllocatableCPUs(context.Context) (topology.CPUSet, error) { return nil, nil }

// pods returns the pods of a source of requests.
func (r *records) pods(ctx context.Context) ([]corev1.Pod, error) {
	if err := r.answer(ctx, podsRecord); err != nil {
		return nil, err
	}
	r.mu.Lock()
	more := r.tenant
	r.mu.Unlock()
	told, ready := r.kubelet.Tell()
	if !ready && !r.shows {
		return nil, errAway
	}
	pods := slices.Clone(more)
	for i := range told {
		pods = append(pods, r.describe(&told[i]))
	}
	return pods, nil
}

// each calls see with every pod.
func (r *records) each(ctx context.Context, see func(*corev1.Pod)) error {
	pods, err := r.pods(ctx)
	for i := range pods {
		see(&pods[i])
	}
	return err
}

// heal ends all faults.
func (r *records) heal() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.absent)
	clear(r.late)
}

// draw returns a random change of a record: a fault begins or ends.
func (r *records) draw(random *rand.Rand) Event {
	e := Event{Kind: recordDisturbs, Name: []string{listRecord, getRecord, podsRecord}[random.IntN(3)]}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.absent[e.Name] || r.late[e.Name] > 0:
		e.What = isBack
	case random.IntN(3) == 0:
		e.What, e.Late = isLate, time.Duration(1+random.IntN(80_000))*time.Microsecond
	default:
		e.What = isAbsent
	}
	return e
}

// set changes a record, and describes the fault that begins.
func (r *records) set(e Event) (what string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.absent, e.Name)
	delete(r.late, e.Name)
	switch e.What {
	case isBack:
		return "", nil
	case isLate:
		r.late[e.Name] = e.Late
	case isAbsent:
		r.absent[e.Name] = true
	default:
		return "", fmt.Errorf("disturb a record: %q is unknown", e.What)
	}
	return e.Name + " " + e.What, nil
}

// describe returns a pod, with what it claims.
func (r *records) describe(p *intent.Pod) corev1.Pod {
	pod := describe(p)
	r.mu.Lock()
	defer r.mu.Unlock()
	if uid := r.claims[p.Pod]; uid != "" {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, corev1.MirrorPodAnnotationKey, uid)
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "node"}}
	}
	return pod
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
		case kubeletmodel.Sidecar:
			container.RestartPolicy = &always
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, container)
		case kubeletmodel.Init:
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, container)
		default:
			pod.Spec.Containers = append(pod.Spec.Containers, container)
		}
	}
	return pod
}
