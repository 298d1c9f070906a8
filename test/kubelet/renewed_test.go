package kubelet_test

import (
	v1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/test/kubelet/node"
)

// renew deletes pods and creates them again at once, as a StatefulSet or a training job does: each with its name and a UID of its own.
// They are judged as any other.
func renew(c *chaos) func() {
	if len(c.pods) == 0 {
		c.judge(c.next(&shape{app: []want{{2, 2}}}))
	}
	for range min(len(c.pods), 1+c.random.IntN(3)) {
		i := c.random.IntN(len(c.pods))
		old := c.pods[i]
		c.load.depart(i)
		c.judge(c.requireSome(c.again(old)))
		c.happened()
	}
	return nothing
}

// again makes a pod that wants what another one wanted, under its name.
func (c *chaos) again(old *v1.Pod) *v1.Pod {
	c.admissions++
	c.began = c.Pair.Log.Len()
	return node.Pod(old.Name, old.Spec.InitContainers, old.Spec.Containers)
}
