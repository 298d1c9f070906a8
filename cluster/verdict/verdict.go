// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/cluster/v1alpha1"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
)

// Verdict is what the kubelet says to a pod, and what the pod gets.
type Verdict struct {
	Admitted bool
	Never    bool   // not even the empty node would admit the pod
	Reason   string // one plain sentence for people, without a full stop; empty where the pod is admitted
	// Required says that the kubelet would admit the pod, but Tandem refuses it: the pod's alignment is
	// required, and not all its pairs would be on one switch each.
	Required bool
	// Chance says that other devices than these may be given: init containers have left more than a container
	// asks for, of which the kubelet takes any, or several containers take over what one has left, of which the
	// coordinator knows the first one alone.
	Chance bool

	Pairs      int         // same-switch pairs that the pod gets
	Wanted     int         // pairs that it asks for: the sum over its containers of min(GPUs, VFs)
	Containers []Container // those with devices, in the order of admission; empty where the pod is not admitted
}

// Container is what one container gets.
type Container struct {
	Name string
	// Nodes are the NUMA nodes that the Topology Manager gives the container, 0 where any will do.
	Nodes   hints.Mask
	Devices map[string][]int // by resource, the numbers of the published object, ascending
	Pairs   int              // on one switch each
}

// Managers are the CPU and memory managers of a node. They do not change, and may be asked from several
// goroutines at once.
type Managers interface {
	// Given is what the managers have given out when the containers hold what the object says. It is an error
	// where the object cannot be understood.
	Given(held []v1alpha1.Held) (Given, error)
	// Empty is what they have given out on the empty node. That can be less than Given of no pods: the kubelet
	// does not find all of the memory again that containers had of several NUMA nodes.
	Empty() Given
	// Concerns reports whether a pod gets CPUs or memory of its own once the kubelet has admitted it: whether
	// the object will show that the pod holds any.
	Concerns(pod *v1.Pod) bool
}

// Given is what CPU and memory managers have given out.
type Given interface {
	// Clone shares nothing with the original.
	Clone() Given
	// Hints are those of a container that is being admitted, or of the whole pod where the container is nil,
	// which is what scope pod asks for; one list for each resource that has a say.
	Hints(pod *v1.Pod, container *v1.Container) []hints.List
	// Take gives a container its CPUs and memory, under the hint that the Topology Manager has made of all. An
	// error is the sentence of the kubelet's refusal.
	Take(pod *v1.Pod, container *v1.Container, best hints.Hint) error
	// Remove takes everything back from a pod.
	Remove(uid types.UID)
}
