// SPDX-License-Identifier: Apache-2.0

// Package verdict predicts, from a published node, the decision of the kubelet on a pod, and the devices and
// pairs of the pod's containers. The verdict is a pure function of the object and of the admitted pods: no
// clock, no logger, no I/O.
//
// [State.Admit] follows the kubelet: one container after another, the Topology Manager's merge of all hints
// (package model), then the devices, as chosen by the device manager and by the coordinator of
// coordination/admission if the coordinator knows the container's request. [State.Ask] omits the choice if
// the verdict does not depend on the devices.
//
// The verdict is the kubelet's. Devices, and therefore pairs, can differ in the following cases: random
// choices ([Verdict.Chance]); a container that the coordinator cannot identify; and, for VFs without hints,
// a static memory manager, and CPUs under scope pod, which the coordinator ignores. The package ignores
// shared devices (time slicing), devices that a scheduler chose (annotation tandem.dev/devices), and
// resources of other plugins. A required alignment counts also on a node that reads no annotations: there the
// pod's pairs would be on one switch by chance alone.
package verdict

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/coordination/kubelet/devicemanager"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
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
	Nodes   model.Mask
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
	Hints(pod *v1.Pod, container *v1.Container) []model.Hints
	// Take assigns CPUs and memory to a container, with the Topology Manager's merged hint. The error has the
	// text of the kubelet's rejection.
	Take(pod *v1.Pod, container *v1.Container, best model.Hint) error
	// Remove releases the CPUs and memory of a pod.
	Remove(uid types.UID)
}

// describeRefusal returns the reason of a refusal as one sentence for people.
func (t *trial) describeRefusal(r *devicemanager.Refusal, never bool) string {
	sentence := ""
	shortage := t.findShortage(r)
	switch {
	case r.Err != nil:
		sentence = r.Err.Error()
	case shortage != nil:
		sentence = t.describeShortage(shortage, r.Requests)
	default:
		sentence = t.describeTopology(r, never)
	}
	if r.Container >= 0 && (t.requests.with > 1 || len(r.Requests) == 0) {
		sentence = fmt.Sprintf("container %s: %s", t.requests.containers[r.Container].Name, sentence)
	}
	return sentence
}

// findShortage returns the shortage of devices that causes a refusal, or nil.
func (t *trial) findShortage(r *devicemanager.Refusal) *devicemanager.Shortage {
	if r.Err != nil || r.Shortage != nil {
		return r.Shortage
	}
	return t.Shortage(r.Requests, r.Container >= 0)
}

// describeShortage describes a shortage of devices.
func (t *trial) describeShortage(s *devicemanager.Shortage, asked model.Requests) string {
	r := &t.Node.Resources[s.Resource]
	if !s.Healthy {
		return fmt.Sprintf("no %s is healthy", r.Name)
	}
	return fmt.Sprintf("only %d of %d %s are free, asked for are %s", s.Free, r.Count, r.Name,
		t.listRequests(asked))
}

// describeTopology explains why the Topology Manager finds no NUMA nodes.
func (t *trial) describeTopology(r *devicemanager.Refusal, never bool) string {
	type need struct {
		model.Request
		nodes int
	}
	rule := &t.Kubelet.Rule
	var hinted model.Requests
	most, least := need{}, need{nodes: 65}
	for _, a := range r.Requests.ByResource() {
		if !t.Node.Resources[a.Resource].Hinted {
			continue
		}
		hinted = append(hinted, a)
		n := need{a, rule.Width(t.Demand(a, r.Container >= 0))}
		if n.nodes > most.nodes {
			most = n
		}
		if n.nodes < least.nodes {
			least = n
		}
	}
	switch {
	case len(hinted) == 0:
		return fmt.Sprintf("no NUMA nodes have the requested CPUs and memory; policy %s refuses others",
			rule.Policy)
	case never && most.nodes != least.nodes:
		sentence := fmt.Sprintf("%s needed for %s, %s with hints need %d: never admitted under %s",
			countNodes(most.nodes), t.describeAmount(most.Request), t.pluralOf(least.Request), least.nodes,
			rule.Policy)
		if t.Node.Resources[least.Resource].Kind == model.VF {
			sentence += "; excludeTopology is the way out"
		}
		return sentence
	case rule.Policy == model.SingleNUMANode && most.nodes > 1:
		return fmt.Sprintf("%s needed for %s: never admitted under %s", countNodes(most.nodes),
			t.describeAmount(most.Request), rule.Policy)
	}
	where := "no NUMA node has "
	if most.nodes > 1 {
		where = fmt.Sprintf("no %d NUMA nodes have ", most.nodes)
	}
	sentence := where + t.listRequests(hinted) + " free"
	if t.managers != nil {
		sentence += " with the requested CPUs and memory"
	}
	return sentence + fmt.Sprintf("; policy %s refuses more nodes", rule.Policy)
}

func countNodes(n int) string {
	if n == 1 {
		return "1 NUMA node"
	}
	return fmt.Sprintf("%d NUMA nodes", n)
}

// describeAmount returns text such as "8 GPUs".
func (t *trial) describeAmount(a model.Request) string {
	if a.Count == 1 {
		return fmt.Sprint("1 ", t.Node.Resources[a.Resource].Kind)
	}
	return fmt.Sprint(a.Count, " ", t.pluralOf(a))
}

func (t *trial) pluralOf(a model.Request) string {
	return t.Node.Resources[a.Resource].Kind.String() + "s"
}

// listRequests returns text such as "4 amd.com/gpu and 4 tandem.dev/rdma_vf".
func (t *trial) listRequests(asked model.Requests) string {
	var parts []string
	for _, a := range asked.ByResource() {
		parts = append(parts, fmt.Sprintf("%d %s", a.Count, t.Node.Resources[a.Resource].Name))
	}
	if len(parts) < 2 {
		return strings.Join(parts, "")
	}
	return strings.Join(parts[:len(parts)-1], ", ") + " and " + parts[len(parts)-1]
}
