// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// After a failure a target rests as long as the API server asks; the pause doubles up to its limit.
func TestRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const asked = 30 * time.Second
		k := keeper{Publisher: &Publisher{}}
		began := time.Now()
		k.restAfter(t.Context(), apierrors.NewTooManyRequests("busy", int(asked.Seconds())))
		if took := time.Since(began); took != asked || k.pause != firstPause {
			t.Errorf("rested %s, want %s; pause %s", took, asked, k.pause)
		}
		for want := 2 * firstPause; want < 4*maxPause; want *= 2 {
			k.restAfter(t.Context(), errors.New("unreachable"))
			if k.pause != min(want, maxPause) {
				t.Errorf("pause %s, want %s", k.pause, min(want, maxPause))
			}
		}
	})
}
