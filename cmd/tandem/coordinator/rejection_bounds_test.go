// SPDX-License-Identifier: Apache-2.0

package coordinator_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// TestManyContainers: a pod of thousands of init containers, which take the same devices one after the other,
// is explained like others, on a page of text, and without a search of seconds for the pods to wait for.
func TestManyContainers(t *testing.T) {
	t.Parallel()
	p, owners := pod(8, 120, ""), map[string][]string{"gpu0": {"team/a"}}
	one := pod(1, 1, "").Spec.Containers[0]
	for i := range 8000 {
		one.Name = fmt.Sprint("init-", i)
		p.Spec.InitContainers = append(p.Spec.InitContainers, one)
	}
	for i := range 60 {
		owners["vf0"] = append(owners["vf0"], fmt.Sprint("team/", i))
	}
	none := kubelet.Read([]coordinator.Decision{}, nil)
	r := coordinator.ExplainRejection(p, twoNodes(60, owners), none, configured(t, ""))
	if !r.FitsEmpty || r.FitsNow || !strings.HasPrefix(r.Next, "wait for free devices, ") {
		t.Errorf("fits now: %v, the empty node: %v, next: %s", r.FitsNow, r.FitsEmpty, r.Next)
	}
	text := r.Text().String()
	if lines := strings.Count(text, "\n"); lines > 200 || !strings.Contains(text, "and 7985 containers more") {
		t.Errorf("%d lines, want at most 200:\n%.2000s", lines, text)
	}
}
