// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/test/kubelettest"
	"github.com/tandem-k8s/tandem/test/published"
)

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
