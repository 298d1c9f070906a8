// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"
	"fmt"
	"time"

	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/api"
)

// Role is the current role of a plugin in the coordination of its node.
type Role string

// Roles of a plugin.
const (
	Serves  Role = "server"  // it holds the lock and answers for both plugins
	Joined  Role = "client"  // another plugin serves
	Foreign Role = "foreign" // another plugin serves with an incompatible protocol
	Apart   Role = "alone"   // no plugin serves
)

// Roles lists all roles.
var Roles = []Role{Serves, Joined, Foreign, Apart}

// Role returns the plugin's current role.
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

// Resources returns the devices of both plugins while this plugin serves, otherwise nil. It may call the
// kubelet, for at most a second.
func (n *Node) Resources() []*api.Resource {
	if own := n.serving.Load(); own != nil {
		return own.coordinator.Resources()
	}
	return nil
}

// stuck is the maximum time between two rounds of the election, which runs every electionPause.
const stuck = 6 * electionPause

// Alive returns an error if a part of this plugin hangs that a restart would fix: the election or, while the
// plugin serves, the coordinator. It waits at most until ctx is done.
func (n *Node) Alive(ctx context.Context) error {
	if beat := n.beat.Load(); beat != nil && time.Since(*beat) > stuck {
		return fmt.Errorf("the election of the coordination server has hung since %s", beat.Format(time.RFC3339))
	}
	if own := n.serving.Load(); own != nil {
		return own.coordinator.Alive(ctx)
	}
	return nil
}

// turn records a round of the election.
func (n *Node) turn() {
	now := time.Now()
	n.beat.Store(&now)
}

func (n *Node) observer() admission.DecisionObserver { return admission.OrNobody(n.config.Observer) }
