// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/finding"
	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/managers"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// Refused are pods that the kubelet of a node has refused for their NUMA nodes, and that nobody has deleted.
type Refused struct {
	Number  int
	Seen    []string // evidence: the names, or the source of the number
	Unknown string   // why the number is unknown; the other fields mean nothing then
}

// refusal is the kubelet's reason (ErrorTopologyAffinity in pkg/kubelet/cm/topologymanager).
const refusal = "TopologyAffinityError"

// kubeletTimeout limits the question to the kubelet, which answers in milliseconds.
const kubeletTimeout = 5 * time.Second

// IsRefused reports whether the kubelet has refused a pod for its NUMA nodes.
func IsRefused(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed && p.Status.Reason == refusal
}

// AskRefused asks the kubelet for its pods. The caller needs root's rights alone.
func AskRefused(ctx context.Context, kubeletDir string) Refused {
	ctx, cancel := context.WithTimeout(ctx, kubeletTimeout)
	defer cancel()
	pods, err := kubelet.ListPods(ctx, kubeletDir)
	if err != nil {
		return Refused{Unknown: err.Error()}
	}
	var r Refused
	for i := range pods {
		if IsRefused(&pods[i]) {
			r.Seen = append(r.Seen, pods[i].Namespace+"/"+pods[i].Name)
		}
	}
	slices.Sort(r.Seen)
	r.Number = len(r.Seen)
	return r
}

// CountedRefused returns a number of pods that the API server has counted.
func CountedRefused(number int) Refused {
	return Refused{Number: number, Seen: []string{
		"kubectl get pods -A --field-selector status.phase=Failed,spec.nodeName=NODE lists them",
	}}
}

// packing repeats the measurement of refused pods in docs/performance.md.
const packing = "With 60 % of the GPUs in use, 9.5 % of jobs have a rejected pod with bin packing " +
	"(MostAllocated), and 0.3 % with spreading (LeastAllocated; simulated, docs/performance.md)."

// refusedPods finds refused pods: the scheduler counted free devices, wherever on the node these were.
func refusedPods(r Refused) []Finding {
	return finding.When(r.Number > 0, Finding{
		ID: "refused-pods", Severity: Warning,
		Summary: fmt.Sprintf("%s rejected by this kubelet and not deleted: %s.",
			finding.CountAre(r.Number, "pod"), refusal),
		Evidence: finding.Some(r.Seen),
		Why: "The default scheduler counts devices without regard to NUMA nodes. " + packing +
			" Kubernetes deletes such pods only when the cluster has more than 12,500 terminated pods.",
		Fix: []string{
			"use tandem-scheduler, which applies the kubelet's admission rules (scheduler.enabled in the chart)",
			"or configure the default scheduler to spread pods (LeastAllocated) instead of packing them",
			"the descheduler deletes the existing pods: deployments/descheduler/values.yaml",
		},
	})
}

// uncounted is a remark about an unknown number of refused pods, under a policy that refuses some; else "".
func uncounted(r Refused, policy string) string {
	if r.Number > 0 || r.Unknown == "" || policy != managers.Restricted && policy != "single-numa-node" {
		return ""
	}
	return "The number of pods that this kubelet rejected is unknown: " + r.Unknown + ". " + packing
}
