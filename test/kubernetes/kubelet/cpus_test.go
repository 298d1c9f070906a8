// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/node"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/rig"
)

// Where pods have CPUs of their own, CPUs decide on the NUMA node too. VFs that have none, when they are
// asked for first, are to be beside the GPUs that come after them all the same.
func TestMixedLoadWithCPUs(t *testing.T) {
	l := &load{t: t, random: rand.New(rand.NewPCG(*seed, 4)), Rig: startRig(t, rig.Setup{
		Machine: "oci-mi300x-derived", VFsPerPF: 4, ExcludeTopology: true, Coordinated: true, PodsAPI: true,
		ReservedCPUs: "0-1",
	})}
	most := l.CPUsOfANode()
	admitted, refused, elsewhere := 0, 0, 0
	for i := 0; i < *admissions/2 || elsewhere == 0 && i < 10**admissions; i++ { // the kubelet's order is chance
		for len(l.pods) > 0 && (min(l.Free(l.GPU), l.Free(rig.VF)) < 2 || l.random.IntN(3) == 0) {
			l.depart(l.random.IntN(len(l.pods)))
		}
		pod := withCPUs(shape{app: []want{{1 + i%2, 1 + i%2}}}.pod(fmt.Sprint("pod-", i), l.GPU),
			1+l.random.IntN(most))
		placements, err := l.Admit(deadline(t), pod)
		var rejection *node.Rejection
		switch {
		case err == nil:
			admitted++
			l.pods = append(l.pods, pod)
			l.check(pod, placements[0])
			if placements[0].Asked[0] == rig.VF && placements[0].NUMA[0] > 0 {
				elsewhere++
			}
		case errors.As(err, &rejection) && rejection.Reason == "TopologyAffinityError":
			refused++
			if err := l.Remove(pod); err != nil {
				t.Fatal(err)
			}
		default:
			t.Fatal(err)
		}
	}
	t.Logf("%d admitted, of them %d with VFs first and not on the first node; %d refused; "+
		"%d containers with pairs judged", admitted, elsewhere, refused, l.count.paired)
	if elsewhere == 0 {
		t.Error("the CPUs never decided")
	}
	l.checkJudged()
	l.checkLedger()
}

// withCPUs makes a pod one of class Guaranteed whose containers want so many CPUs each.
func withCPUs(pod *v1.Pod, count int) *v1.Pod {
	for i := range pod.Spec.Containers {
		limits := pod.Spec.Containers[i].Resources.Limits
		limits[v1.ResourceCPU] = *resource.NewQuantity(int64(count), resource.DecimalSI)
		limits[v1.ResourceMemory] = resource.MustParse("1Gi")
		pod.Spec.Containers[i].Resources.Requests = limits
	}
	return pod
}
