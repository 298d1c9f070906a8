// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/node"
	"github.com/tandem-k8s/tandem/test/published"
	"github.com/tandem-k8s/tandem/topology"
)

// randomPod has one container or several, and asks for as much as there is or a little more.
func (n *judgedNode) randomPod(name string) *v1.Pod {
	var init, app []v1.Container
	inits, apps := []int{0, 0, 0, 1, 2}[n.random.IntN(5)], []int{1, 1, 1, 2, 3}[n.random.IntN(5)]
	for i := range inits {
		c := n.randomContainer(fmt.Sprint("init-", i), apps)
		if n.random.IntN(3) == 0 {
			c.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
		}
		init = append(init, c)
	}
	for i := range apps {
		app = append(app, n.randomContainer(fmt.Sprint("app-", i), apps))
	}
	pod := node.Pod(name, init, app)
	if n.random.IntN(3) > 0 {
		n.claim(pod)
	}
	pod.CreationTimestamp.Time = time.Now()
	if n.random.IntN(4) == 0 {
		pod.Annotations = map[string]string{intent.AlignmentKey: string(intent.Required)}
	}
	return pod
}

func (n *judgedNode) randomContainer(name string, share int) v1.Container {
	limits := v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}
	small := n.random.IntN(3) > 0
	pairs := n.random.IntN(5) / share
	for i := range n.world.offered {
		o := &n.world.offered[i]
		most := (n.free(o) + n.random.IntN(2)) / share
		if small {
			most = min(most, 4)
		}
		count := n.random.IntN(most + 1)
		if n.random.IntN(2) == 0 {
			count = min(pairs, most)
		}
		if count > 0 || n.random.IntN(20) == 0 {
			limits[v1.ResourceName(o.Name)] = *resource.NewQuantity(int64(count), resource.DecimalSI)
		}
	}
	return v1.Container{Name: name, Resources: v1.ResourceRequirements{Limits: limits, Requests: limits}}
}

// pairs counts the same-switch pairs of devices, by the real tree.
func (n *judgedNode) pairs(devices map[string][]string) int {
	on := map[string]*[2]int{}
	for _, o := range n.world.offered {
		for _, d := range o.Devices {
			at := n.world.tree.Switch(d.Address)
			if slices.Contains(devices[o.Name], d.ID) && topology.IsSwitch(at) {
				if on[at] == nil {
					on[at] = &[2]int{}
				}
				if o.Kind == device.GPU {
					on[at][0]++
				} else {
					on[at][1]++
				}
			}
		}
	}
	sum := 0
	for _, both := range on {
		sum += min(both[0], both[1])
	}
	return sum
}

// certain reports whether it is known what the coordinator goes by, and nothing is left to chance:
//
//   - Under best-effort and none, and for VFs without hints under scope pod or beside a static memory
//     manager, it makes a difference in which order the kubelet takes the resources of a container, which is
//     chance: the coordinator predicts NUMA nodes as if the policy were restricted and the scope container,
//     and knows nothing of memory.
//   - What init containers of other pods have left over is shown by nobody: the coordinator can take it for
//     free.
func (n *judgedNode) certain() bool {
	k := n.world.kubelet
	if k.TopologyManagerPolicy != "restricted" && k.TopologyManagerPolicy != "single-numa-node" {
		return false
	}
	unhinted := slices.ContainsFunc(n.world.offered, func(o published.Resource) bool {
		return !slices.ContainsFunc(o.Devices, func(d device.Device) bool { return d.NUMA != topology.NUMANode{} })
	})
	foreseen := k.TopologyManagerScope != "pod" && !n.world.hasMemory()
	return (!unhinted || foreseen) && !slices.ContainsFunc(n.admitted, n.leaves)
}

// leaves reports whether a pod has devices that none of its containers uses any more.
func (n *judgedNode) leaves(pod *v1.Pod) bool {
	used := map[string]bool{}
	for i, c := range slices.Backward(node.Containers(pod)) {
		over := i < len(pod.Spec.InitContainers) && c.RestartPolicy == nil
		for _, ids := range n.node.Devices(pod, c.Name) {
			for _, id := range ids {
				if over && !used[id] {
					return true
				}
				used[id] = true
			}
		}
	}
	return false
}
