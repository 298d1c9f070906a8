// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"context"
	"errors"
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

// hang is a source that answers nothing in time.
func hang[T any](ctx context.Context) (none T, err error) {
	<-ctx.Done()
	return none, ctx.Err()
}

// hangOf is a hanging Get.
func hangOf(ctx context.Context, _ kubelet.Pod) (kubelet.View, error) { return hang[kubelet.View](ctx) }

// holdByOther makes another pod hold a GPU.
func (a *admission) holdByOther(gpu string) {
	other := kubelet.Pod{Namespace: "team", Name: "other"}
	a.coordinator.current().hold(holders.Holders{{Pod: other, Name: "c", Devices: kubelet.Devices{gpus: {gpu}}}})
}

// A kubelet that answers nothing at all costs a question the time of one look, and an Allocate too. An
// Explain, for which no admission waits, has more time.
func TestHungLooksAreWaitedForTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(t, "oci-mi300x-derived", 1, false, 1)
		read := sourcesOf(a.coordinator)
		read.look, read.get, read.pods = hang[kubelet.View], hangOf, hang[intent.Answer]
		begun := time.Now()
		ids, _ := a.ask(gpus, 0, 2)
		if took := time.Since(begun); took != readLimit {
			t.Errorf("a question took %v", took)
		}
		a.holdByOther(ids[0])
		begun = time.Now()
		if _, refusal := a.allocated(gpus, []string{ids[0], "unplanned"}); refusal != "" {
			t.Error(refusal)
		}
		if took := time.Since(begun); took != readLimit {
			t.Errorf("an Allocate took %v", took)
		}
		begun = time.Now()
		_, err := a.coordinator.Explain(t.Context(), "team", "nobody", "")
		if took := time.Since(begun); took != explainLimit || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("an Explain took %v: %v", took, err)
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

// PodResources Get hangs during an Allocate: the request source is read with half of the time.
func TestAllocateAsksASourceInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(t, "oci-mi300x-derived", 1, false, 1)
		sourcesOf(a.coordinator).get = hangOf
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
		a.holdByOther(id)
		a.allocated(gpus, []string{id})
		for _, time := range left {
			if time <= 0 {
				t.Errorf("the source is asked with %v left", time)
			}
		}
	})
}
