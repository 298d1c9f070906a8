package coordination

import (
	"context"
	"fmt"
	"time"

	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/api"
)

// Role is what a plugin is to the coordination of its node at a moment.
type Role string

// The roles.
const (
	Serves  Role = "server"  // it holds the lock and answers for both
	Joined  Role = "client"  // another plugin does
	Foreign Role = "foreign" // another does, and speaks another protocol: devices are placed without it
	Apart   Role = "alone"   // nobody does
)

// Roles are all that there are.
var Roles = []Role{Serves, Joined, Foreign, Apart}

// Role tells what the plugin is now.
func (n *Node) Role() Role {
	switch {
	case n.serving.Load() != nil:
		return Serves
	case n.foreign.Load():
		return Foreign
	case n.joined.Load():
		return Joined
	default:
		return Apart
	}
}

// Resources are those of both plugins with their devices while this one serves; nil while it does not. The
// kubelet may be asked, for a second at the most.
func (n *Node) Resources() []*api.Resource {
	if own := n.serving.Load(); own != nil {
		return own.coordinator.Resources()
	}
	return nil
}

// stuck is how long the election may take no turn: it takes one every electionPause.
const stuck = 6 * electionPause

// Alive reports what of this plugin's part hangs so that a restart would help: the election or, while it
// serves, the coordinator. It waits until ctx is done at most.
func (n *Node) Alive(ctx context.Context) error {
	if beat := n.beat.Load(); beat != nil && time.Since(*beat) > stuck {
		return fmt.Errorf("the election of the coordination server has hung since %s", beat.Format(time.RFC3339))
	}
	if own := n.serving.Load(); own != nil {
		return own.coordinator.Alive(ctx)
	}
	return nil
}

// turn notes that the election took a turn.
func (n *Node) turn() {
	now := time.Now()
	n.beat.Store(&now)
}

func (n *Node) observer() admission.Observer { return admission.OrNobody(n.config.Observer) }
