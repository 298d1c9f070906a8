// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// Refused says which pods lie on a node since its kubelet has refused them for their NUMA nodes.
type Refused struct {
	Number  int
	Seen    []string // evidence: their names, or who has counted them
	Unknown string   // why nobody could tell; the rest means nothing then
}

// refusal is the kubelet's reason (ErrorTopologyAffinity in pkg/kubelet/cm/topologymanager).
const refusal = "TopologyAffinityError"

// kubeletTimeout is how long to wait for the kubelet, which answers in milliseconds.
const kubeletTimeout = 5 * time.Second

// IsRefused reports whether the kubelet has refused a pod for its NUMA nodes.
func IsRefused(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed && p.Status.Reason == refusal
}

// AskRefused asks the kubelet for its pods, for which it takes no right but root's.
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

// CountedRefused is what somebody else has counted.
func CountedRefused(number int) Refused {
	return Refused{Number: number, Seen: []string{
		"kubectl get pods -A --field-selector status.phase=Failed,spec.nodeName=NODE lists them",
	}}
}

// packing is what docs/performance.md has of refused pods.
const packing = "Where 60 % of the GPUs are busy, 9.5 % of jobs have a refused pod with bin packing " +
	"(MostAllocated), and 0.3 % where pods are spread (simulated: docs/performance.md)."

// refusedPods: a scheduler that counts devices sends pods where enough are free, but not on one set of NUMA
// nodes.
func (e *examination) refusedPods() {
	r := e.Refused
	switch {
	case r.Number > 0:
		e.find(Finding{
			ID: "refused-pods", Severity: Warning,
			Summary:  fmt.Sprintf("%s still there that this kubelet refused: %s.", isAre(r.Number, "pod"), refusal),
			Evidence: some(r.Seen),
			Why: "The default scheduler counts devices and does not know NUMA nodes. " + packing +
				" Nobody but the pods' owners removes them before a cluster has 12,500 pods that have ended.",
			Fix: []string{
				"tandem-scheduler, which sends no pod where the kubelet will refuse it: scheduler.enabled in the chart",
				"or have the default scheduler spread pods (LeastAllocated) instead of packing them",
				"the descheduler removes those that are there: deployments/descheduler/values.yaml",
			},
		})
	case r.Unknown != "" && (e.kubelet.Policy == restricted || e.kubelet.Policy == "single-numa-node"):
		e.remark = "Pods that this kubelet has refused could not be counted: " + r.Unknown + ". " + packing
	}
}
