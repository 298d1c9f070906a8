// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/publish"
	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
	"github.com/tandem-k8s/tandem/test/published"
	"github.com/tandem-k8s/tandem/topology"
)

// labelsOf returns the labels of a NodeFeature.
func labelsOf(t *testing.T, f publish.Facts, targets ...string) map[string]string {
	t.Helper()
	s := newServer("a")
	if _, err := sink(t, s.config(t, "a", targets...)).Write(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{}
	for name, value := range s.at(featureOfA, "spec", "labels").(map[string]any) {
		labels[name] = value.(string)
	}
	return labels
}

func TestLabels(t *testing.T) {
	f := read(t, "oci-mi300x-derived", 2, false, "", published.Restricted, func(gpus, _ *published.Resource) {
		gpus.Devices[0].Healthy = false // changes must not matter
		gpus.Links = []topology.Link{{A: gpus.Devices[0].Address, B: gpus.Devices[1].Address, Type: topology.XGMI}}
	})
	f.Enforced = true
	for _, c := range []struct {
		facts publish.Facts
		want  map[string]string
	}{
		{f, map[string]string{"tandem.dev/switches": "8", "tandem.dev/pairs": "8", "tandem.dev/pairs-per-numa": "4",
			"tandem.dev/vf-hint": "false", "tandem.dev/gpu-model": "1002-74a1", "tandem.dev/gpu-links": "xgmi",
			"tandem.dev/alignment-enforced": "true"}},
		{read(t, "nv-4xrtx6000ada-2cx7", 2, true, "", published.Restricted), map[string]string{
			"tandem.dev/switches": "0", "tandem.dev/pairs": "0", "tandem.dev/pairs-per-numa": "0",
			"tandem.dev/vf-hint": "true", "tandem.dev/gpu-model": "10de-26b1", "tandem.dev/gpu-links": "none",
			"tandem.dev/alignment-enforced": "false"}},
	} {
		if diff := cmp.Diff(c.want, labelsOf(t, c.facts, "nfd")); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
}

// TestKubeNexusLabels: CPUs with gaps would make an invalid value of a label.
func TestKubeNexusLabels(t *testing.T) {
	f := publish.Facts{Tree: &topology.Tree{}, NUMANodes: []v1alpha1.NUMANode{
		{Number: 0, CPUs: "0-1", Memory: map[string]v1alpha1.Memory{"memory": {Total: 5}}},
		{Number: 1, CPUs: "2,4"},
	}}
	want := labelsOf(t, f, "nfd")
	maps.Copy(want, map[string]string{
		"numa.kubenexus.io/node-count": "2", "numa.kubenexus.io/node-0-cpus": "0-1",
		"numa.kubenexus.io/node-0-memory": "5",
	})
	if diff := cmp.Diff(want, labelsOf(t, f, "nfd", "kubenexus")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestAlignmentPolicyIsPublished: a scheduler can tell a node whose plugins reject every pod with pairs apart
// from a node that rejects only pods with the annotation.
func TestAlignmentPolicyIsPublished(t *testing.T) {
	for _, c := range []struct {
		policy intent.Policy
		want   map[string]any
	}{
		{intent.Policy{}, map[string]any{}},
		{intent.Policy{Alignment: intent.Required}, map[string]any{"required": true}},
		{
			intent.Policy{Alignment: intent.Required, OptOut: intent.AllNamespaces},
			map[string]any{"required": true, "optOut": "all"},
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			n, s := newNode(t, "a"), newServer("a")
			n.policy = c.policy
			defer run(t, n.publisher(t, s), n)()
			wait(t, time.Second)
			got, _ := s.at(topologyOf("a"), "spec", "alignment").(map[string]any)
			if diff := cmp.Diff(c.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%+v (-want +got):\n%s", c.policy, diff)
			}
		})
	}
}
