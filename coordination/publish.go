package coordination

import (
	"context"

	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/survive"
)

// Publisher tells others of the node, as long as this plugin serves. Nobody waits for it.
type Publisher interface {
	// Publish goes on until ctx is done. It may be called again then.
	Publish(ctx context.Context, plugins Announced) error
	// Notes are sentences for people about what cannot be published now, sorted; none while all is well.
	Notes() []string
}

// Announced is what the plugins of the node have told the one that serves.
type Announced interface {
	// Announced returns the newest, which never changes, and a channel that is closed once there may be a newer.
	Announced() (admission.Announced, <-chan struct{})
}

// publish has the node published until ctx is done. What goes wrong with that is no reason not to serve.
func (n *Node) publish(ctx context.Context, plugins Announced) {
	err := survive.Do(n.config.Log, func() error { return n.config.Publisher.Publish(ctx, plugins) })
	if err != nil {
		n.config.Log.Error("publish nothing of this node until another plugin serves", "error", err)
	}
}

// notes are what people are told of the publication.
func (n *Node) notes() []string {
	if n.config.Publisher == nil {
		return nil
	}
	return n.config.Publisher.Notes()
}
