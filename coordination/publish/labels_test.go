// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/publish"
	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
	"github.com/tandem-k8s/tandem/test/kubelettest"
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

// TestKubeNexus: CPUs with gaps would make an invalid value of a label.
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
	root := t.TempDir()
	if err := os.CopyFS(root, recordedSys(t)); err != nil {
		t.Fatal(err)
	}
	preferred := publishedUnder(t, root, intent.Policy{})
	if diff := cmp.Diff(preferred, publishedUnder(t, root, intent.Policy{})); diff != "" {
		t.Fatalf("control: the same policy: %s", diff)
	}
	required := publishedUnder(t, root, intent.Policy{Alignment: intent.Required})
	if cmp.Equal(preferred, required) {
		t.Error("--alignment=required publishes the same object as --alignment=preferred")
	}
	excepted := intent.Policy{Alignment: intent.Required, OptOut: intent.AllNamespaces}
	if cmp.Equal(required, publishedUnder(t, root, excepted)) {
		t.Error("--alignment-opt-out=all publishes the same object as --alignment-opt-out=none")
	}
}

// publishedUnder returns the specification that a node with a policy for annotations publishes.
func publishedUnder(t *testing.T, root string, policy intent.Policy) any {
	t.Helper()
	n, s, dir := newNode(t, "a"), newServer("a"), kubelettest.Dir(t)
	node, err := coordination.New(coordination.Config{
		RunDir: filepath.Join(dir, "run"), SysRoot: root, KubeletDir: dir, Publisher: n.publisher(t, s),
		Intent: intent.Config{Policy: policy}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- node.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	for _, r := range published.Resources(n.tree, false) {
		node.Member(r.Name, r.Kind).Publish(device.Announcement{Devices: r.Devices})
	}
	limit, again := time.After(kubelettest.Limit), time.NewTicker(10*time.Millisecond)
	defer again.Stop()
	for {
		resources, _ := s.at(topologyOf("a"), "spec", "resources").([]any)
		if len(resources) == 2 {
			return s.at(topologyOf("a"), "spec")
		}
		select {
		case <-again.C:
		case <-limit:
			t.Fatalf("published: %v", resources)
		}
	}
}
