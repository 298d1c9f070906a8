package coordination

import (
	"context"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/topology"
)

// cpus are the node's as the kubelet's static CPU policy sees them: which NUMA node each is on, and of those that it can give to a
// container alone which nobody has.
type cpus struct{ all, free []topology.NUMANode }

// demand is a number of CPUs as the Topology Manager looks at it (generateCPUTopologyHints in
// pkg/kubelet/cm/cpumanager/policy_static.go). The policy's options are not looked at, nor what an init container hands on.
func (c *cpus) demand(count int) Demand { return Demand{Count: count, All: c.all, Free: c.free} }

// newCPUs puts together where the CPUs are, which can be given away, and what PodResources shows of them; nil where none can be
// given: the policy is not static.
func newCPUs(nodes map[int]topology.CPUSet, allocatable []int64, view kubelet.View) *cpus {
	if len(allocatable) == 0 {
		return nil
	}
	c, free := &cpus{}, topology.CPUSet{}
	for _, cpu := range allocatable {
		free[int(cpu)] = !view.Exclusive[int(cpu)]
	}
	for number, set := range nodes {
		for cpu := range set {
			c.all = append(c.all, topology.Node(number))
			if free[cpu] {
				c.free = append(c.free, topology.Node(number))
			}
		}
	}
	return c
}

// cpusFor reads what is known of CPUs where it can matter: the devices that are offered do not tell the NUMA nodes, and a pod that may be
// asking wants CPUs of its own. The kubelet gives a container its devices before its CPUs, but decides on the nodes by both.
func (c *coordinator) cpusFor(ctx context.Context, q question, now seen) *cpus {
	if c.allocatableCPUs == nil || now.view == nil || now.answer == nil || !wantsCPUs(now.answer.Pods) || c.offersNodes(q) {
		return nil
	}
	allocatable, err := c.allocatableCPUs(ctx)
	if err != nil {
		c.log.Warn("choose without knowing where CPUs are free", "error", err)
		return nil
	}
	return newCPUs(c.nodeCPUs(), allocatable, *now.view)
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
func (c *coordinator) offersNodes(q question) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.ledger.nodes(q.resource, q.available)) > 0
}
