package fleet

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/cluster/v1alpha1"
	"github.com/tandem-k8s/tandem/cluster/verdict"
)

// node is a node as its kubelet knows it. The fleet's loop owns it.
type node struct {
	name    string
	state   *verdict.State
	held    map[types.UID]v1alpha1.Held // of the pods that run
	down    bool
	waiting []*v1.Pod // that came while the kubelet was down
	late    bool      // a report is due
}

func newNode(name string, known *verdict.Node) *node {
	return &node{
		name: name, state: known.State(func(types.UID) bool { return false }),
		held: map[types.UID]v1alpha1.Held{},
	}
}

// admit decides on a pod as the kubelet does.
func (n *node) admit(pod *v1.Pod) verdict.Verdict {
	v := n.state.Admit(pod)
	if v.Admitted {
		n.held[pod.UID] = heldBy(pod.UID, v)
	}
	return v
}

func (n *node) end(uid types.UID) {
	n.state.Remove(uid)
	delete(n.held, uid)
}

// report is what the pods hold, as it is published.
func (n *node) report() []v1alpha1.Held {
	list := make([]v1alpha1.Held, 0, len(n.held))
	for _, held := range n.held {
		list = append(list, held)
	}
	slices.SortFunc(list, func(a, b v1alpha1.Held) int { return cmp.Compare(a.UID, b.UID) })
	return list
}

// back are the pods that waited for the kubelet, in the order in which it takes them: by the second of their
// creation (HandlePodAdditions in pkg/kubelet/kubelet.go).
func (n *node) back() []*v1.Pod {
	pods := n.waiting
	n.down, n.waiting = false, nil
	slices.SortStableFunc(pods, func(a, b *v1.Pod) int {
		return cmp.Compare(a.CreationTimestamp.Unix(), b.CreationTimestamp.Unix())
	})
	return pods
}

func heldBy(uid types.UID, v verdict.Verdict) v1alpha1.Held {
	held := v1alpha1.Held{UID: string(uid)}
	for _, c := range v.Containers {
		container := v1alpha1.Container{Name: c.Name, Devices: map[string]v1alpha1.Set{}}
		for resource, devices := range c.Devices {
			container.Devices[resource] = v1alpha1.SetOf(devices...)
		}
		held.Containers = append(held.Containers, container)
	}
	return held
}
