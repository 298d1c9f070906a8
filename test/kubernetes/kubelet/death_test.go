// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/pair"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/rig"
)

// Whichever daemon dies, whether or not it served the coordination socket: the other one goes on, and once it
// is back pods get the best pairs again, beside the pods that were there before.
func TestDaemonDies(t *testing.T) {
	for _, c := range []struct {
		name      string
		resources []string // of the daemons that die
		meanwhile want     // what can be had until they are back
	}{
		{"GPU", []string{rig.AMD}, want{0, 2}},
		{"RDMA", []string{rig.VF}, want{2, 0}},
		{"both", []string{rig.AMD, rig.VF}, want{0, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := startRig(t, rig.Setup{
				Machine: "oci-mi300x-derived", VFsPerPF: 4, ExcludeTopology: true, Coordinated: true,
			})
			admitBest(t, r, "before", want{1, 1})
			for _, resource := range c.resources {
				kill(t, r, resource)
			}
			admitBest(t, r, "meanwhile", c.meanwhile)
			for _, resource := range c.resources {
				if err := daemonOf(r, resource).Start(); err != nil {
					t.Fatal(err)
				}
			}
			if err := r.WaitReady(deadline(t)); err != nil {
				t.Fatal(err)
			}
			admitBest(t, r, "after", want{2, 2})
			admitBest(t, r, "later", want{1, 1})
		})
	}
}

// kill kills the daemon of a resource and waits until the kubelet has noticed.
func kill(t *testing.T, r *rig.Rig, resource string) {
	t.Helper()
	if err := daemonOf(r, resource).Kill(); err != nil {
		t.Fatal(err)
	}
	if err := r.Node.WaitAllocatable(deadline(t), resource, 0); err != nil {
		t.Fatal(err)
	}
}

func daemonOf(r *rig.Rig, resource string) *pair.Daemon {
	if resource == r.GPU {
		return r.Pair.GPU
	}
	return r.Pair.RDMA
}

// admitBest admits a pod with one container, which has to get the best pairs.
func admitBest(t *testing.T, r *rig.Rig, name string, w want) *v1.Pod {
	t.Helper()
	pod := shape{app: []want{w}}.pod(name, r.GPU)
	placements, err := r.Admit(deadline(t), pod)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range placements {
		if p.Pairs != p.Best {
			t.Errorf("pod %s, %v asked first: %v, want %v\n%s", name, p.Asked[0], p.Pairs, p.Best, pair.Text(p.Log))
		}
	}
	return pod
}
