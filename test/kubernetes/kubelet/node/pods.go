// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
)

// pods replaces the pod manager, the pod workers and the status manager: it tracks the kubelet's pods and the
// active ones. A pod is active from before its admission until it has failed or all its containers have
// stopped; its devices are free only when it is inactive. Lists have no particular order, as in the kubelet.
type pods struct {
	ready atomic.Bool // the pod sources have delivered all pods

	mu       sync.Mutex
	known    map[types.UID]*v1.Pod
	inactive map[types.UID]bool
}

func newPods() *pods {
	return &pods{known: map[types.UID]*v1.Pod{}, inactive: map[types.UID]bool{}}
}

func (p *pods) add(pod *v1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known[pod.UID] = pod
}

func (p *pods) deactivate(pod *v1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inactive[pod.UID] = true
}

func (p *pods) remove(pod *v1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.known, pod.UID)
	delete(p.inactive, pod.UID)
}

// GetPods returns every pod the kubelet knows.
func (p *pods) GetPods() []*v1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Values(p.known))
}

// GetActivePods returns the active pods, whose devices are not free.
func (p *pods) GetActivePods() []*v1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	var active []*v1.Pod
	for uid, pod := range p.known {
		if !p.inactive[uid] {
			active = append(active, pod)
		}
	}
	return active
}

// GetPodByName returns the active pod with this name (kubeletPodsProvider in pkg/kubelet/kubelet.go).
func (p *pods) GetPodByName(namespace, name string) (*v1.Pod, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for uid, pod := range p.known {
		if pod.Namespace == namespace && pod.Name == name && !p.inactive[uid] {
			return pod, true
		}
	}
	return nil, false
}

func (p *pods) byUID(uid types.UID) (*v1.Pod, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pod, ok := p.known[uid]
	return pod, ok
}

// running returns the containers that the container runtime would list when the kubelet restarts: the app
// containers of the active pods.
func (p *pods) running() containermap.ContainerMap {
	running := containermap.NewContainerMap()
	for _, pod := range p.GetActivePods() {
		for _, container := range pod.Spec.Containers {
			running.Add(string(pod.UID), container.Name, containerID(pod, container.Name))
		}
	}
	return running
}

func containerID(pod *v1.Pod, container string) string {
	return fmt.Sprintf("%s/%s", pod.UID, container)
}

func containerIDs(containers containermap.ContainerMap) sets.Set[string] {
	return sets.KeySet(containers)
}
