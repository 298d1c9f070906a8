// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
	"github.com/tandem-k8s/tandem/coordination/api"
)

// decided answers with decisions.
type decided struct {
	plugins
	decisions []*api.Decision
}

func (d decided) Explain(context.Context, *api.ExplainRequest) (*api.ExplainResponse, error) {
	return &api.ExplainResponse{Decisions: d.decisions}, nil
}

// TestExplainOfOneName: a pod is deleted only if its own namespace has a later pod of its name.
func TestExplainOfOneName(t *testing.T) {
	t.Parallel()
	decision := func(namespace, refusal string) *api.Decision {
		d := &api.Decision{
			Container: &api.Owner{Namespace: namespace, Pod: "train-0", Container: "main"}, Resource: "amd.com/gpu",
			TimeUnixNano: 1, Asked: true, Size: 1, Reason: "fine", Refusal: refusal,
		}
		if refusal == "" {
			d.Held, d.AllocatedUnixNano, d.Allocated = true, 1, []string{ociGPU0}
		}
		return d
	}
	for _, c := range []struct {
		name    string
		others  []*api.Decision // after that for the pod in namespace a
		deleted bool
	}{
		{name: "alone"},
		{name: "another namespace", others: []*api.Decision{decision("b", "")}},
		{name: "created again", others: []*api.Decision{decision("a", "")}, deleted: true},
		{
			name:   "created again in another namespace",
			others: []*api.Decision{decision("b", ""), decision("b", "")},
		},
		{
			name:   "refused in another namespace",
			others: []*api.Decision{decision("b", "alignment"), decision("b", "")},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			run := filepath.Join(t.TempDir(), "run")
			serveAs(t, run, decided{decisions: append([]*api.Decision{decision("a", "")}, c.others...)})
			var told coordinator.PodExplanation
			text := succeed(t, "explain", "train-0", "--run-dir", run, "-o", "json")
			if err := json.Unmarshal([]byte(text), &told); err != nil || len(told.Decisions) != 1+len(c.others) {
				t.Fatalf("%v: %s", err, text)
			}
			if first := told.Decisions[0]; first.EarlierPod != c.deleted {
				t.Errorf("%s is of a deleted pod: %t; want %t", first.Container, first.EarlierPod, c.deleted)
			}
		})
	}
}
