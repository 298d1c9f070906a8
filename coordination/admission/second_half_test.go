// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/test/scale"
)

// countReads counts how often an admission lists PodResources and what pods ask for.
func (a *admission) countReads() *atomic.Int32 {
	reads, read := new(atomic.Int32), sourcesOf(a.coordinator)
	look, pods := read.look, read.pods
	read.look = func(ctx context.Context) (kubelet.View, error) {
		reads.Add(1)
		return look(ctx)
	}
	read.pods = func(ctx context.Context) (intent.Answer, error) {
		answer, err := pods(ctx)
		if err == nil {
			reads.Add(1)
		}
		return answer, err
	}
	return reads
}

// The second half of a container gets what was planned for it at the first one, and its container is named:
// each half looks at all sources.
func TestSecondHalfIsAsPlanned(t *testing.T) {
	t.Parallel()
	eachOrder(t, []intent.Source{"", intent.PodsAPI}, func(t *testing.T, a *admission, order []string) {
		each, why := int32(1), "%s of team/pod/c; told by podresources"
		if a.source != "" {
			each, why = 2, "team/pod/c wants 2 amd.com/gpu, 2 nvidia.com/vf; %s; told by pods-api"
		}
		reads := a.countReads()
		pod := a.pending("pod", wish{2, 2}).Pod
		a.pods[pod]["c"] = kubelet.Devices{}
		a.serve(pod, order[0], 1, 2)
		if reads.Load() != each {
			t.Errorf("%d reads at the first half, want %d", reads.Load(), each)
		}
		planned := slices.Clone(a.coordinator.current().open.Plan.Devices[order[1]])
		chosen, said := a.ask(order[1], 1, 2)
		if reads.Load() != 2*each || !device.SameSet(chosen, planned) {
			t.Errorf("%d reads at both halves, want %d; %v, planned %v", reads.Load(), 2*each, chosen, planned)
		}
		asked := map[string]string{
			gpus: "kubelet asked for GPUs after VFs", vfs: "kubelet asked for VFs after GPUs",
		}
		wantWords(t, said, fmt.Sprintf(why, asked[order[1]]))
		for _, d := range devicesOf(a.coordinator.Status(t.Context()).GetResources()) {
			if d.GetAllocated() && d.GetOwner().GetPod() != pod.Name {
				t.Errorf("%s is %v's", d.GetDevice().GetId(), d.GetOwner())
			}
		}
	})
}

// Without List the kubelet's checkpoint shows that the container lacks its second half, however late the
// kubelet asks.
func TestSecondHalfWithoutList(t *testing.T) {
	t.Parallel()
	eachOrder(t, []intent.Source{""}, func(t *testing.T, a *admission, order []string) {
		pod := a.add("pod")
		a.pods[pod]["c"] = kubelet.Devices{}
		a.serve(pod, order[0], 1, 2)
		planned := slices.Clone(a.coordinator.current().open.Plan.Devices[order[1]])
		a.away, a.now = true, a.now.Add(10*FollowWindow)
		chosen, why := a.ask(order[1], 1, 2)
		if !device.SameSet(chosen, planned) || strings.Contains(why, "asked first") {
			t.Errorf("%v, planned %v: %s", chosen, planned, why)
		}
	})
}

// A device that the kubelet offers although a pod has it is left out of the second half, too.
func TestSecondHalfLeavesOutWhatAnotherPodHas(t *testing.T) {
	for seed := range uint64(scale.Rounds(20)) {
		a := newAdmission(t, "oci-mi300x-derived", 4, seed%2 == 0, seed)
		a.keepCheckpoint()
		owner := a.add("owner")
		a.mustAdmit(owner, "worker", wish{1, 1})
		pod := a.add("pod")
		a.pods[pod]["c"] = kubelet.Devices{}
		a.serve(pod, gpus, 0, 2)
		held := a.pods[owner]["worker"][vfs][0]
		a.free[vfs] = append(a.free[vfs], device.Device{ID: held, Address: a.address(vfs, held)})
		if ids, why := a.ask(vfs, 0, 2); slices.Contains(ids, held) {
			t.Errorf("seed %d: %v are preferred and %s has %s: %s", seed, ids, owner.Name, held, why)
		}
	}
}

// A VF that is unhealthy is left out of the second half, and of the pairs that are left: the GPU is chosen
// where a healthy VF is.
func TestSecondHalfLeavesOutUnhealthyDevices(t *testing.T) {
	t.Parallel()
	a := newAdmission(t, "oci-mi300x-derived", 1, false, 1)
	a.keepCheckpoint()
	local := a.aligned(gpus, []int{0})
	last := local[len(local)-1]
	tree := a.coordinator.current().tree
	for i, d := range a.all[vfs] {
		a.all[vfs][i].Healthy = tree.Distance(last.Address, d.Address).Level.Direct()
	}
	a.announce()
	a.add("pod")
	chosen, why := a.ask(gpus, 0, 1)
	if !slices.Equal(chosen, []string{last.ID}) || !strings.Contains(why, "; 0 same-switch pairs left") {
		t.Errorf("chosen %v, though only beside %s a VF is healthy: %s", chosen, last.ID, why)
	}
}
