// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// Rejection is the kubelet's refusal of a pod, as in the pod's status. The pod has failed permanently.
type Rejection struct {
	Pod     string
	Reason  string // "TopologyAffinityError", "UnexpectedAdmissionError"
	Message string
}

func (r *Rejection) Error() string {
	return fmt.Sprintf("pod %s rejected: %s: %s", r.Pod, r.Reason, r.Message)
}

// Admit admits a new pod like HandlePodAdditions in pkg/kubelet/kubelet.go: it adds the pod, then calls the
// admission handlers, including the allocation of all containers, for one pod at a time. The error is a
// *Rejection.
func (n *Node) Admit(pod *v1.Pod) error {
	n.admission.Lock()
	defer n.admission.Unlock()
	n.pods.add(pod)
	return n.admit(pod)
}

func (n *Node) admit(pod *v1.Pod) error {
	others := slices.DeleteFunc(n.pods.GetActivePods(), func(p *v1.Pod) bool { return p.UID == pod.UID })
	if ok, reason, message := n.addPod(others, pod); !ok {
		n.pods.deactivate(pod)
		return &Rejection{Pod: pod.Name, Reason: reason, Message: message}
	}
	for _, c := range Containers(pod) {
		n.addContainer(pod, &c, containerID(pod, c.Name))
	}
	return nil
}

// Terminate ends a pod's containers. The kubelet keeps the pod as an inactive one. Unlike Remove, Terminate
// may be called at any time.
func (n *Node) Terminate(pod *v1.Pod) { n.pods.deactivate(pod) }

// Remove ends a pod: its containers stop, then the kubelet forgets the pod, without a call to plugins.
func (n *Node) Remove(pod *v1.Pod) error {
	n.admission.Lock()
	defer n.admission.Unlock()
	n.pods.deactivate(pod)
	for _, c := range Containers(pod) {
		if err := n.removeContainer(containerID(pod, c.Name)); err != nil {
			return fmt.Errorf("remove pod %s: %w", pod.Name, err)
		}
		if err := n.cpus.remove(pod, c.Name); err != nil {
			return fmt.Errorf("remove pod %s: %w", pod.Name, err)
		}
		n.memory.remove(pod, c.Name)
	}
	n.removePod(pod)
	n.pods.remove(pod)
	return nil
}
