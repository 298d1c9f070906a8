// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/system"
)

// A kubelet that answers nothing at all costs a question the time of one look, and an Allocate too.
func TestHungLooksAreWaitedForTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(t, "oci-mi300x-derived", 1, false, 1)
		sourcesOf(a.coordinator).look = func(ctx context.Context) (kubelet.View, error) {
			<-ctx.Done()
			return kubelet.View{}, fmt.Errorf("list: %w", ctx.Err())
		}
		sourcesOf(a.coordinator).get = func(ctx context.Context, _ kubelet.Pod) (kubelet.View, error) {
			return a.coordinator.Kubelet.List(ctx)
		}
		sourcesOf(a.coordinator).pods = func(ctx context.Context) (intent.Answer, error) {
			<-ctx.Done()
			return intent.Answer{}, ctx.Err()
		}
		begun := time.Now()
		ids, _ := a.ask(gpus, 0, 2)
		if took := time.Since(begun); took != readLimit {
			t.Errorf("a question took %v", took)
		}
		owner := kubelet.Container{Pod: kubelet.Pod{Namespace: "team", Name: "other"}, Name: "c"}
		a.coordinator.current().hold(holders.Holders{
			{Pod: owner.Pod, Name: owner.Name, Devices: kubelet.Devices{gpus: ids[:1]}},
		})
		begun = time.Now()
		if _, refusal := a.allocated(gpus, []string{ids[0], "unplanned"}); refusal != "" {
			t.Error(refusal)
		}
		if took := time.Since(begun); took != readLimit {
			t.Errorf("an Allocate took %v", took)
		}
	})
}

// TestHungCheckpointIsTold: the log says when a question or an Allocate is judged without the checkpoint.
func TestHungCheckpointIsTold(t *testing.T) {
	t.Parallel()
	a := newAdmission(t, "oci-mi300x-derived", 1, false, 1)
	var log bytes.Buffer
	a.coordinator.Log = slog.New(slog.NewTextHandler(&log, nil))
	sourcesOf(a.coordinator).recorded = func() (none kubelet.Checkpoint, err error) {
		return none, system.ErrHangs
	}
	ids, _ := a.ask(gpus, 0, 2)
	a.allocated(gpus, ids)
	for _, want := range []string{"judge who asks without", "judge whose devices these are without"} {
		if strings.Count(log.String(), want) != 1 {
			t.Errorf("%q is not told once:\n%s", want, &log)
		}
	}
}
