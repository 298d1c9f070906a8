// SPDX-License-Identifier: Apache-2.0

package rejection_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
	"github.com/tandem-k8s/tandem/cmd/tandem/rejection"
	"github.com/tandem-k8s/tandem/coordination/kubelet/devicemanager"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
)

// twoNodes is a node with four GPUs and vfs VFs on each of two NUMA nodes. Owners hold the first devices of a
// resource on a NUMA node.
func twoNodes(vfs int, owners map[string][]string) *coordinator.Status {
	s := &coordinator.Status{}
	for kind, count := range []int{4, vfs} {
		kind := []string{"gpu", "vf"}[kind]
		r := coordinator.Resource{Name: "example.com/" + kind, Kind: kind, Connected: true}
		for node := range uint32(2) {
			holders := owners[fmt.Sprint(kind, node)]
			for i := range count {
				d := coordinator.Device{ID: fmt.Sprint(kind, node, i), NUMA: &node, State: "free"}
				if i < len(holders) {
					d.State, d.Owner = "allocated", holders[i]+"/c"
				}
				r.Devices = append(r.Devices, d)
			}
		}
		s.Resources = append(s.Resources, r)
	}
	return s
}

func pod(gpus, vfs int, cpus string) *corev1.Pod {
	limits := corev1.ResourceList{"example.com/gpu": *resource.NewQuantity(int64(gpus), resource.DecimalSI)}
	if vfs > 0 {
		limits["example.com/vf"] = *resource.NewQuantity(int64(vfs), resource.DecimalSI)
	}
	if cpus != "" {
		limits["cpu"], limits["memory"] = resource.MustParse(cpus), resource.MustParse("1Gi")
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "train"},
		Spec: corev1.PodSpec{NodeName: "gpu-1", Containers: []corev1.Container{{
			Name: "worker", Resources: corev1.ResourceRequirements{Limits: limits, Requests: limits},
		}}},
	}
}

// TestVerdicts: the verdict and the next step for each reason of a rejection.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	busy := map[string][]string{
		"gpu0": {"team/a", "team/a", "team/a"}, "gpu1": {"team/b", "team/b", "team/b"},
		"vf0": {"team/a"}, "vf1": {"team/b", "team/b", "team/b"},
	}
	for name, c := range map[string]struct {
		vfs                int
		owners             map[string][]string
		pod                *corev1.Pod
		fitsNow, fitsEmpty bool
		why, next          string
	}{
		"busy": {4, busy, pod(2, 2, ""), false, true, "now no set of NUMA nodes has enough free devices of each " +
			"resource. The empty node admits the pod on 1 NUMA node.",
			"wait for the end of team/a, then create team/train"},
		"always": {16, nil, pod(5, 5, ""), false, false, "even with all devices free: the smallest sets of NUMA " +
			"nodes for its resources have no set in common", "admits 1+1, 2+2, 3+3, 4+4; kubectl tandem doctor gpu-1"},
		"too many": {4, nil, pod(9, 0, ""), false, false, "it has 8 healthy devices of example.com/gpu",
			"kubectl tandem doctor gpu-1"},
		"fits now": {4, nil, pod(2, 2, ""), true, true, "has released devices since", "create the pod again"},
		"CPUs":     {4, nil, pod(2, 2, "8"), true, true, "exclusive CPUs", "kubectl tandem doctor gpu-1 --cpus 8"},
		"no device": {4, nil, pod(0, 0, ""), true, true, "requests no device that Tandem's plugins offer",
			"kubectl tandem status"},
	} {
		r := rejection.Explain(c.pod, twoNodes(c.vfs, c.owners),
			devicemanager.Kubelet{Rule: hints.Rule{Policy: hints.Restricted}})
		if r.FitsNow != c.fitsNow || r.FitsEmpty != c.fitsEmpty || !strings.Contains(r.Verdict, c.why) ||
			!strings.Contains(r.Next, c.next) {
			t.Errorf("%s: fits now %v, empty %v: %s\nnext: %s", name, r.FitsNow, r.FitsEmpty, r.Verdict, r.Next)
		}
	}
}

// TestText: verdict and next step come first, then the free devices of each NUMA node and the holders.
func TestText(t *testing.T) {
	t.Parallel()
	owners := map[string][]string{"gpu0": {"team/a", "team/a", "team/a"}, "gpu1": {"team/b", "team/b", "team/b"}}
	r := rejection.Explain(pod(2, 2, "8"), twoNodes(4, owners),
		devicemanager.Kubelet{Rule: hints.Rule{Policy: hints.Restricted}, ScopePod: true})
	text := strings.Join(strings.Fields(string(r.Text())), " ")
	at := 0
	for _, want := range []string{
		"team/train was rejected by the kubelet's Topology Manager on node gpu-1 (policy restricted, scope pod)",
		" next wait for the end of team/a",
		"container worker requests 2 example.com/gpu, 2 example.com/vf, 8 exclusive CPUs",
		"RESOURCE REQUESTED NUMA FREE NOW example.com/gpu 2 0 1/4 1 1/4 example.com/vf 2 0 4/4 1 4/4",
		"HELD BY RESOURCE NUMA DEVICES team/a example.com/gpu 0 3 team/b example.com/gpu 1 3",
	} {
		found := strings.Index(text[at:], want)
		if found < 0 {
			t.Fatalf("no %q in this place:\n%s", want, r.Text())
		}
		at += found
	}
}
