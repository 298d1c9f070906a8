// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// The kubelet hangs. Three people ask for the status, and wait for one survey together; a fourth, who waits
// for 100 ms at most, gets the status by the last decision then.
func TestSurveyIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(t, "oci-mi300x-derived", 1, false, 1)
		reads := 0
		sourcesOf(a.coordinator).get = func(ctx context.Context, _ kubelet.Pod) (kubelet.View, error) {
			<-ctx.Done()
			return kubelet.View{}, ctx.Err()
		}
		sourcesOf(a.coordinator).pods = func(ctx context.Context) (intent.Answer, error) {
			reads++
			<-ctx.Done()
			return intent.Answer{}, ctx.Err()
		}
		begun := time.Now()
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() { a.coordinator.Status(context.Background()) })
		}
		synctest.Wait()
		const patience = 100 * time.Millisecond
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if got := a.coordinator.Status(ctx); len(got.GetResources()) != 2 {
			t.Errorf("%d resources", len(got.GetResources()))
		}
		if took := time.Since(begun); took != patience {
			t.Errorf("a caller with a deadline of %v waited %v", patience, took)
		}
		all.Wait()
		if took := time.Since(begun); took != surveyTimeout || reads != 1 {
			t.Errorf("the callers took %v and %d reads", took, reads)
		}
	})
}
