// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// PodResources Get hangs during an Allocate: the request source is read with half of the time.
func TestAllocateAsksASourceInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(t, "oci-mi300x-derived", 1, false, 1)
		sourcesOf(a.coordinator).get = func(ctx context.Context, _ kubelet.Pod) (kubelet.View, error) {
			<-ctx.Done()
			return kubelet.View{}, ctx.Err()
		}
		var left []time.Duration
		sourcesOf(a.coordinator).pods = func(ctx context.Context) (intent.Answer, error) {
			deadline, _ := ctx.Deadline()
			left = append(left, time.Until(deadline))
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return intent.Answer{}, ctx.Err()
			}
			return intent.Answer{Source: intent.PodsAPI}, nil
		}
		id := a.all[gpus][0].ID
		owner := kubelet.Container{Pod: kubelet.Pod{Namespace: "team", Name: "other"}, Name: "c"}
		a.coordinator.current().hold(holders.Holders{
			{Pod: owner.Pod, Name: owner.Name, Devices: kubelet.Devices{gpus: {id}}},
		})
		a.allocated(gpus, []string{id})
		for _, time := range left {
			if time <= 0 {
				t.Errorf("the source is asked with %v left", time)
			}
		}
	})
}
