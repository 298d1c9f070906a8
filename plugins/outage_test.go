// SPDX-License-Identifier: Apache-2.0

package plugins_test

import (
	"fmt"
	"testing"
	"time"
)

// TestSourceAfterAnOutage: the kubelet is away for two seconds, and then admits pods. The first question
// finds its Pods API again.
func TestSourceAfterAnOutage(t *testing.T) {
	s := newScene(t, "oci-mi300x-derived", 1, allVFs)
	s.begin(t)
	admit := func(when string) func(attempt int) string { // a pod with a VF of another switch
		return func(attempt int) string {
			s.pods(required(fmt.Sprint("pod-", when, attempt), onePair))
			s.allocate(t, gpus, s.ids[gpus][:1], 1)
			far := s.ids[vfs][7:8]
			s.prefer(t, vfs, far, 1)
			if _, err := s.plugins[vfs].Allocate(t.Context(), far...); err == nil {
				return "a required alignment is not enforced " + when + " the outage"
			}
			return ""
		}
	}
	if wrong := s.timely(t, admit("before")); wrong != "" {
		t.Fatal(wrong)
	}
	if wrong := s.timely(t, func(attempt int) string {
		s.stop()
		s.prefer(t, gpus, s.ids[gpus], 1) // a question during the outage
		<-time.After(2 * time.Second)
		s.servePods(t)
		return admit("after")(attempt)
	}); wrong != "" {
		t.Error(wrong)
	}
}
