// SPDX-License-Identifier: Apache-2.0

package models_test

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/coordination/publish"
	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
	"github.com/tandem-k8s/tandem/coordination/verdict"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/node"
	"github.com/tandem-k8s/tandem/test/published"
)

// foretell returns the scheduler's verdict on a pod.
func (r *real) foretell(pod *v1.Pod) (verdict.Verdict, error) {
	w := r.world
	f := publish.Facts{Tree: w.tree, Resources: published.Announce(w.resources...)}
	f.Spec.Kubelet = v1alpha1.Kubelet{
		TopologyManagerPolicy: w.policy, TopologyManagerScope: w.scope, TopologyManagerPolicyOptions: w.options(),
		CPUManagerPolicy: "none", MemoryManagerPolicy: "None",
	}
	for _, n := range w.numa {
		f.NUMANodes = append(f.NUMANodes, n.Describe())
	}
	spec := publish.BuildSpec(f, r.node.Held(r.admitted))
	n, err := verdict.New(&v1alpha1.NodeTopology{Spec: spec}, nil)
	if err != nil {
		return verdict.Verdict{}, err
	}
	return n.State(func(types.UID) bool { return true }).Admit(pod), nil
}

// plan returns the containers of a verdict. A verdict that rejects a pod has none: the plugins answer for the
// containers before the rejected one as in the verdict on these alone. Under scope pod, which aligns all
// containers to the same NUMA nodes, answers do not decide.
func (r *real) plan(pod *v1.Pod, v verdict.Verdict) ([]container, error) {
	for n := len(node.Containers(pod)) - 1; !v.Admitted && n > 0; n-- {
		part := pod.DeepCopy()
		part.Spec.InitContainers = part.Spec.InitContainers[:min(n, len(pod.Spec.InitContainers))]
		part.Spec.Containers = part.Spec.Containers[:n-len(part.Spec.InitContainers)]
		var err error
		if v, err = r.foretell(part); err != nil {
			return nil, err
		}
	}
	return r.told(pod, v), nil
}

// told converts a verdict. It says nothing of questions.
func (r *real) told(pod *v1.Pod, v verdict.Verdict) (containers []container) {
	for _, c := range node.Containers(pod) {
		told := container{}
		if i := slices.IndexFunc(v.Containers, func(o verdict.Container) bool { return o.Name == c.Name }); i >= 0 {
			told.Nodes = v.Containers[i].Nodes.Numbers()
			for name, ids := range published.IDs(r.world.resources, v.Containers[i].Devices) {
				told.Allocations = append(told.Allocations, allocation{Resource: name, Devices: ids})
			}
		}
		containers = append(containers, told)
	}
	return containers
}
