// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
)

// Verdict is the kubelet's decision on a pod, with the devices of the pod.
type Verdict struct {
	Admitted bool
	Never    bool   // not even the empty node would admit the pod
	Reason   string // one plain sentence for people, without a full stop; empty if the pod is admitted
	// Required means that the kubelet would admit the pod, but Tandem rejects the pod: alignment is required,
	// and some pairs would not be on one switch.
	Required bool
	// Chance means that the pod may get different devices: the kubelet chooses at random if init containers
	// have left more devices than a container requests, and the coordinator knows only the first of several
	// containers that reuse devices.
	Chance bool

	Pairs      int         // same-switch pairs that the pod gets
	Wanted     int         // requested pairs: the sum over all containers of min(GPUs, VFs)
	Containers []Container // with devices, in the order of admission; empty if the pod is not admitted
}

// Container is the assignment of one container.
type Container struct {
	Name string
	// Nodes are the NUMA nodes from the Topology Manager, 0 for any.
	Nodes   hints.Mask
	Devices map[string][]int // by resource, the numbers in the published object, ascending
	Pairs   int              // on one switch each
}

// Managers are the CPU and memory managers of a node. Managers do not change, and may be used from several
// goroutines at once.
type Managers interface {
	// Restore returns the assignments of the managers for the containers in the object, or an error if the
	// object is invalid.
	Restore(held []v1alpha1.Held) (ManagerState, error)
	// Empty returns the assignments on the empty node. These can be less than Restore without pods: the kubelet
	// does not recover all memory of containers on several NUMA nodes.
	Empty() ManagerState
	// Concerns reports whether a pod gets exclusive CPUs or memory on admission, which the object then lists.
	Concerns(pod *v1.Pod) bool
}

// ManagerState is the state of the CPU and memory managers: CPUs and memory by container.
type ManagerState interface {
	// Clone returns an independent copy.
	Clone() ManagerState
	// Hints returns the hints for a container, or for the whole pod (scope pod) if the container is nil; one
	// list for each resource with hints.
	Hints(pod *v1.Pod, container *v1.Container) []hints.List
	// Take assigns CPUs and memory to a container, with the Topology Manager's merged hint. The error has the
	// text of the kubelet's rejection.
	Take(pod *v1.Pod, container *v1.Container, best hints.Hint) error
	// Remove releases the CPUs and memory of a pod.
	Remove(uid types.UID)
}
