// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/finding"
	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/managers"
	"github.com/tandem-k8s/tandem/cmd/tandem/document"
	"github.com/tandem-k8s/tandem/cmd/tandem/rejection"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
)

// Refused are pods that the kubelet of a node has refused for their NUMA nodes, and that nobody has deleted.
type Refused struct {
	Pods    RefusedPods
	Seen    []string // evidence: the names, or the source of the number
	Unknown string   // why the number is unknown; the other fields mean nothing then
}

// AskRefused asks the kubelet for its pods. The caller needs root's rights alone.
func AskRefused(ctx context.Context, kubeletDir string) Refused {
	pods, err := rejection.Pods(ctx, kubeletDir)
	if err != nil {
		return Refused{Unknown: err.Error()}
	}
	var r Refused
	for _, pod := range pods {
		r.Seen = append(r.Seen, pod.Namespace+"/"+pod.Name)
		r.Pods.Add(pod)
	}
	slices.Sort(r.Seen)
	return r
}

// CountedRefused returns pods of a node that the API server has counted; "" is an unknown name of the node.
func CountedRefused(pods RefusedPods, node string) Refused {
	return Refused{Pods: pods, Seen: []string{
		"kubectl get pods -A --field-selector status.phase=Failed,spec.nodeName=" + cmp.Or(node, "NODE") +
			" lists them",
	}}
}

// measured repeats the measurement of rejected pods in docs/performance.md.
const measured = "With 90 % of the GPUs requested, kubelets rejected 14.3 % of its pods at least once, and none " +
	"of tandem-scheduler's (docs/performance.md)."

// refusedFacts are the refused pods, judged on the empty node.
type refusedFacts struct {
	Refused
	always, busy, unknown int // number of pods
	shapes                []string
}

// readRefused judges the shapes of the refused pods on the empty node.
func (n Node) readRefused(k managers.Facts) refusedFacts {
	f := refusedFacts{Refused: n.Refused}
	policy := hints.Restricted
	if k.Policy == string(hints.SingleNUMANode) { // the others refuse nobody: then the policy has changed since
		policy = hints.SingleNUMANode
	}
	empty := n.empty(k, policy)
	node := rejection.NewNode(n.Plugins.Resources, empty.manager)
	cpus := func(count int) hints.List { return empty.manager.Rule.Hints(empty.cpuDemand(count)) }
	for _, group := range n.Refused.Pods.groups {
		shape, known := n.Plugins.shapeOf(group.Containers)
		if !known {
			f.unknown += group.Number
			continue
		}
		text := fmt.Sprintf("%s requested %s: ", document.Count(group.Number, "pod"), shape)
		if node.AdmitsEmpty(group.Containers, cpus) {
			f.busy += group.Number
			text += "rejected only while devices are in use"
		} else {
			f.always += group.Number
			text += "always rejected, even on an empty node"
		}
		f.shapes = append(f.shapes, text)
	}
	return f
}

// refusedPods finds refused pods: the scheduler counted free devices, wherever on the node these were.
func refusedPods(r refusedFacts) []Finding {
	number := r.Pods.Number()
	f := Finding{
		ID: "refused-pods", Severity: Warning,
		Summary: fmt.Sprintf("%s rejected by this kubelet and not deleted: %s.",
			document.CountAre(number, "pod"), intent.TopologyAffinity),
		Evidence: slices.Concat(finding.Some(r.shapes), finding.Some(r.Seen)),
		Why:      "Kubernetes deletes such pods only when the cluster has more than 12,500 terminated pods.",
	}
	if r.always > 0 {
		f.Fix = append(f.Fix, "a shape that is always rejected: request another number of devices or CPUs; "+
			"finding refused-shapes has the cause, and no scheduler can help on this node")
	}
	if r.busy+r.unknown > 0 {
		f.Why = "The default scheduler counts devices without regard to NUMA nodes. " + measured + " " + f.Why
		f.Fix = append(f.Fix,
			"use tandem-scheduler, which applies the kubelet's admission rules (scheduler.enabled in the chart)",
			"or configure the default scheduler to spread pods (LeastAllocated) instead of packing them")
	}
	f.Fix = append(f.Fix, "the descheduler deletes the existing pods: deployments/descheduler/values.yaml")
	return finding.When(number > 0, f)
}

// uncounted is a remark about an unknown number of refused pods, under a policy that refuses some; else "".
func uncounted(r Refused, policy string) string {
	if r.Unknown == "" || policy != managers.Restricted && policy != "single-numa-node" {
		return ""
	}
	return "The number of pods that this kubelet rejected is unknown: " + r.Unknown + "."
}
