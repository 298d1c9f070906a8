// SPDX-License-Identifier: Apache-2.0

package tenant_test

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
	standin "github.com/tandem-k8s/tandem/test/podresources"
	"github.com/tandem-k8s/tandem/test/podsapi"
)

// pods are the pods of a kubelet, which it shows at three servers.
type pods struct {
	podresources.UnimplementedPodResourcesListerServer

	mu      sync.Mutex
	calls   chan<- struct{} // of the answers of a source, while there is room
	tenant  []corev1.Pod
	encoded [][]byte // the tenant's, since the last change
	others  []corev1.Pod
	held    map[string]map[string][]string // devices by pod and resource, of the first container
}

// list returns all pods as a source sends them, the tenant's first. The tenant's pods are encoded once: the
// test takes no time from the daemons.
func (p *pods) list(encode func(*corev1.Pod) ([]byte, error)) ([][]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case p.calls <- struct{}{}:
	default:
	}
	if p.encoded == nil {
		var err error
		p.encoded, err = encodeAll(p.tenant, encode)
		if err != nil {
			return nil, err
		}
	}
	others, err := encodeAll(p.others, encode)
	return slices.Concat(p.encoded, others), err
}

func encodeAll(pods []corev1.Pod, encode func(*corev1.Pod) ([]byte, error)) (encoded [][]byte, err error) {
	for i := 0; i < len(pods) && err == nil; i++ {
		var pod []byte
		pod, err = encode(&pods[i])
		encoded = append(encoded, pod)
	}
	return encoded, err
}

// setTenant replaces the tenant's pods between two calls.
func (p *pods) setTenant(pods []corev1.Pod) {
	p.change(func() { p.tenant, p.encoded = pods, nil })
}

// change changes the other pods between two calls.
func (p *pods) change(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

// List implements PodResources: pods that have not ended, with the devices of others.
func (p *pods) List(
	context.Context, *podresources.ListPodResourcesRequest,
) (*podresources.ListPodResourcesResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	answer := &podresources.ListPodResourcesResponse{}
	for _, all := range [][]corev1.Pod{p.tenant, p.others} {
		for i := range all {
			if pod := &all[i]; !kubelet.HasEnded(pod) {
				answer.PodResources = append(answer.PodResources, resources(pod, p.held[pod.Name]))
			}
		}
	}
	return answer, nil
}

// resources returns a pod as PodResources shows it. The first container has the devices.
func resources(pod *corev1.Pod, held map[string][]string) *podresources.PodResources {
	shown := &podresources.PodResources{Namespace: pod.Namespace, Name: pod.Name}
	for i := range pod.Spec.Containers {
		c := &podresources.ContainerResources{Name: pod.Spec.Containers[i].Name}
		for resource, ids := range held {
			c.Devices = append(c.Devices, &podresources.ContainerDevices{ResourceName: resource, DeviceIds: ids})
		}
		shown.Containers, held = append(shown.Containers, c), nil
	}
	return shown
}

// serve serves the pods by PodResources and by a source, until the end of the test, and returns the flags of
// a daemon that uses the source.
func (p *pods) serve(t testing.TB, dir, source string) (flags []string) {
	t.Helper()
	standin.Serve(t, dir, p)
	if source == https {
		e := podsapi.ServeHTTPS(t, func() ([][]byte, error) {
			return p.list(func(pod *corev1.Pod) ([]byte, error) { return json.Marshal(pod) })
		})
		return []string{
			"--intent=kubelet,podresources", "--kubelet-address=" + e.Address, "--node-name=" + e.Name,
			"--kubelet-token-file=" + e.Token, "--kubelet-ca-file=" + e.CA,
		}
	}
	stop, err := podsapi.ServeEncoded(dir, func() ([][]byte, error) { return p.list((*corev1.Pod).Marshal) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return nil // the default
}
