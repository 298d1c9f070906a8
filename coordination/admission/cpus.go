package admission

import (
	"context"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/topology"
)

// cpus are the node's as the kubelet's static CPU policy sees them: those of every NUMA node and, of those that it can give to a container
// alone, those that nobody has.
type cpus struct {
	nodes map[int]topology.CPUSet
	free  topology.CPUSet
}

// cpusFor reads what is known of CPUs where it can matter: the devices that are offered do not tell the NUMA nodes, and a pod that may be
// asking wants CPUs of its own. The kubelet gives a container its devices before its CPUs, but decides on the nodes by both.
func (c *Coordinator) cpusFor(ctx context.Context, s *state, q question, now seen) *cpus {
	if c.AllocatableCPUs == nil || now.view == nil || now.answer == nil || !wantsCPUs(now.answer.Pods) || s.ledger.offersNodes(q) {
		return nil
	}
	allocatable, err := c.AllocatableCPUs(ctx)
	switch {
	case err != nil:
		c.Log.Warn("choose without knowing where CPUs are free", "error", err)
		return nil
	case len(allocatable) == 0: // the policy is not static
		return nil
	}
	return &cpus{c.NodeCPUs(), allocatable.Without(now.view.Exclusive)}
}

func wantsCPUs(pods []intent.Pod) bool {
	for _, pod := range pods {
		for _, container := range pod.Containers {
			if !pod.Started && container.CPUs > 0 {
				return true
			}
		}
	}
	return false
}

// offersNodes reports whether the devices that are offered tell from which NUMA nodes.
func (l *ledger) offersNodes(q question) bool {
	return len(l.nodes(q.resource, q.available)) > 0
}
