// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"cmp"
	"context"
	"time"

	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/survive"
)

// Publisher publishes the node while this plugin serves. Nothing waits for it.
type Publisher interface {
	// Publish runs until ctx is done. It may be called again after that.
	Publish(ctx context.Context, plugins Announced) error
	// Notes returns sentences about objects that cannot be published now, sorted; none if all objects are up
	// to date.
	Notes() []string
}

// Announced is what the plugins of the node have told the one that serves, and what that knows of the node.
type Announced interface {
	// Announced returns the latest announcements, which never change, and a channel that is closed after the
	// next one.
	Announced() (admission.Announced, <-chan struct{})
	// Enforcement says whether annotations are enforced, and returns a channel that is closed once that changes.
	Enforcement() (intent.Enforcement, <-chan struct{})
}

// published is what the plugin that serves knows.
type published struct {
	*admission.Coordinator
	*intent.Sources
}

// publishPause is the time after which a publisher that has failed starts again.
const publishPause = time.Minute

// publish publishes the node until ctx is done. Errors do not affect the server.
func (n *Node) publish(ctx context.Context, plugins Announced) {
	for {
		err := survive.Do(n.config.Log, func() error { return n.config.Publisher.Publish(ctx, plugins) })
		if ctx.Err() != nil {
			return
		}
		n.config.Log.Error("publish nothing of this node for a while", "retry_in", publishPause, "error", err)
		select {
		case <-time.After(publishPause):
		case <-ctx.Done():
			return
		}
	}
}

// notes returns the notes of the publisher.
func (n *Node) notes() []string {
	if n.config.Publisher == nil {
		return nil
	}
	return n.config.Publisher.Notes()
}

// Enforcement says whether the annotations of pods are enforced, by the last answers of the sources of
// intent; false while this plugin does not serve.
func (n *Node) Enforcement() (now intent.Enforcement, serves bool) {
	if n.serving.Load() == nil {
		return now, false
	}
	now, _ = n.sources.Enforcement()
	return now, true
}

// alignment is the same with the node's own policy, as it is sent.
func (n *Node) alignment() *api.Alignment {
	now, _ := n.sources.Enforcement()
	return &api.Alignment{
		Policy:      string(cmp.Or(n.config.Intent.Policy.Alignment, intent.Preferred)),
		Annotations: now.Enforced(), Source: string(now.Source), Why: now.Why,
	}
}
