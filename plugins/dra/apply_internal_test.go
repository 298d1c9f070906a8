// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"log/slog"
	"net/http"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tandem-k8s/tandem/test/apiserver"
	"github.com/tandem-k8s/tandem/test/apiserver/client"
)

// TestStatusOfAReplacedClaim: a claim that has replaced a claim under its name does not get its status. A
// status is written by the driver's name, over other writers of the same devices: an API server refuses apply
// without a name, and a conflict without force.
func TestStatusOfAReplacedClaim(t *testing.T) {
	now := reserved("train-0")
	now.UID = "of another one"
	server := apiserver.New(now)
	server.Refuse = func(r *http.Request) error {
		q := r.URL.Query()
		if r.Method == http.MethodPatch && (q.Get("fieldManager") == "" || q.Get("force") != "true") {
			t.Errorf("applies by %q", q)
		}
		return nil
	}
	s := newStatuses(client.New(server), slog.New(slog.DiscardHandler))
	t.Cleanup(s.queue.ShutDown)
	before := reserved("train-0")
	s.queueStatus(before, []resourceapi.AllocatedDeviceStatus{{Driver: "tandem.dev", Pool: "a", Device: "d"}})
	s.applyStatus(t.Context(), before.UID)
	later := apiserver.Get[*resourceapi.ResourceClaim](server, now.Namespace, now.Name)
	if told := later.Status.Devices; len(told) > 0 {
		t.Errorf("the later claim has the status %v", told)
	}
}
