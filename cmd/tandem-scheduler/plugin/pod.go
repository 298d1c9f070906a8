// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"slices"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-k8s/tandem/coordination/intent"
)

// asks reports whether a container of a pod asks for a resource.
func asks(pod *v1.Pod, resource string) bool {
	for _, containers := range [...][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			if _, asked := containers[i].Resources.Limits[v1.ResourceName(resource)]; asked {
				return true
			}
		}
	}
	return false
}

// requestFields are the fields of a pod on which a verdict depends. Equal fields result in equal verdicts.
type requestFields struct {
	Namespace  string                             `json:"namespace"` // decides who may opt out of an alignment
	Alignment  string                             `json:"alignment,omitempty"`
	Resources  *v1.ResourceRequirements           `json:"resources,omitempty"`
	Claims     *v1.PodExtendedResourceClaimStatus `json:"claims,omitempty"`
	Containers []container                        `json:"containers"`
	Overhead   v1.ResourceList                    `json:"overhead,omitempty"`
	Init       int                                `json:"init"` // number of init containers
}

type container struct {
	Name      string                     `json:"name"`
	Resources v1.ResourceRequirements    `json:"resources"`
	Restart   *v1.ContainerRestartPolicy `json:"restart,omitempty"`
}

// request is a hash of a pod's requestFields.
type request string

// Clone implements fwk.StateData: a request is immutable.
func (r request) Clone() fwk.StateData { return r }

// hashRequest returns the request of a pod.
func hashRequest(pod *v1.Pod) (request, error) {
	w := requestFields{
		Namespace: pod.Namespace, Alignment: pod.Annotations[intent.AlignmentKey], Resources: pod.Spec.Resources,
		Claims: pod.Status.ExtendedResourceClaimStatus, Init: len(pod.Spec.InitContainers),
		Overhead: pod.Spec.Overhead,
	}
	for _, containers := range [...][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			c := &containers[i]
			w.Containers = append(w.Containers, container{c.Name, c.Resources, c.RestartPolicy})
		}
	}
	text, err := json.Marshal(w)
	hash := sha256.Sum256(text)
	return request(hash[:]), err
}

// byCreation sorts pods stably by the second of their creation, like the kubelet for pods that it receives
// together (HandlePodAdditions in pkg/kubelet/kubelet.go).
func byCreation(pods []*v1.Pod) []*v1.Pod {
	return slices.SortedStableFunc(slices.Values(pods), func(a, b *v1.Pod) int {
		return cmp.Compare(a.CreationTimestamp.Unix(), b.CreationTimestamp.Unix())
	})
}
