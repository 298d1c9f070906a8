// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/publish"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/test/published"
	"github.com/tandem-k8s/tandem/topology"
)

// node is a node with plugins, whose devices the test changes.
type node struct {
	name       string
	policy     intent.Policy
	kubeletDir string
	events     chan publish.Change
	log        *bytes.Buffer

	mu      sync.Mutex
	tree    *topology.Tree
	set     device.Resources
	changed chan struct{}
	failed  int
	written int

	enforcement intent.Enforcement
	otherwise   chan struct{} // closed at the next change
}

var machine = sync.OnceValues(func() (*topology.Tree, error) {
	return machines.Tree("oci-mi300x-derived", 1)
})

func newNode(t testing.TB, name string) *node {
	t.Helper()
	tree, err := machine()
	if err != nil {
		t.Fatal(err)
	}
	n := &node{
		name: name, kubeletDir: t.TempDir(), events: make(chan publish.Change, 100), log: &bytes.Buffer{},
		tree: tree, changed: make(chan struct{}), otherwise: make(chan struct{}),
	}
	if err := published.WriteCheckpoint(n.kubeletDir); err != nil {
		t.Fatal(err)
	}
	n.healthy(8)
	return n
}

// healthy announces GPUs with the given number of healthy ones.
func (n *node) healthy(count int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, r := range published.Resources(n.tree, false) {
		for i := range r.Devices {
			r.Devices[i].Healthy = r.Kind == device.VF || i < count
		}
		set, err := n.set.Announce(r.Name, r.Kind, device.Announcement{Devices: r.Devices})
		if err != nil {
			panic(err)
		}
		n.set = set
	}
	close(n.changed)
	n.changed = make(chan struct{})
}

// Announced implements coordination.Announced.
func (n *node) Announced() (admission.Announced, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return admission.Announced{Tree: n.tree, Resources: n.set.All()}, n.changed
}

// Policy implements coordination.Announced.
func (n *node) Policy() intent.Policy { return n.policy }

// Enforcement implements coordination.Announced.
func (n *node) Enforcement() (intent.Enforcement, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.enforcement, n.otherwise
}

// enforce makes a source answer, or none with "".
func (n *node) enforce(source intent.Source) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.enforcement = intent.Enforcement{Source: source}
	close(n.otherwise)
	n.otherwise = make(chan struct{})
}

// published counts the writes of a publication.
func (n *node) published(_ string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil {
		n.failed++
	} else {
		n.written++
	}
}

func (n *node) watch(ctx context.Context, changed chan<- publish.Change) {
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-n.events:
			select {
			case changed <- event:
			case <-ctx.Done():
				return
			}
		}
	}
}

// publisher returns a publisher to targets, by default with a NodeTopology.
func (n *node) publisher(t testing.TB, s *server, targets ...string) *publish.Publisher {
	t.Helper()
	config := s.config(t, n.name, targets...)
	config.Log = slog.New(slog.NewTextHandler(n.log, nil))
	config.Sys, config.KubeletDir = recordedSys(t), n.kubeletDir
	config.Watch, config.Published = n.watch, n.published
	config.Files = kubelet.ConfigFiles{Config: filepath.Join(n.kubeletDir, kubelet.ConfigFile)}
	p, err := publish.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// run publishes until the test ends or stop is called.
func run(t testing.TB, p *publish.Publisher, n *node) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := p.Publish(ctx, n); err != nil {
			t.Error(err)
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// topologyOf is the path of a node's NodeTopology.
func topologyOf(node string) string { return "/apis/tandem.dev/v1alpha1/nodetopologies/" + node }

// wait lets time pass.
func wait(t testing.TB, d time.Duration) {
	t.Helper()
	<-time.After(d)
}
