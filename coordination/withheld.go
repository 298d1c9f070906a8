package coordination

import (
	"context"
	"strings"
)

// Withheld tells which devices plugins must not hand out although they are there: somebody holds them who got
// them in another way.
type Withheld interface {
	// Latest returns who holds devices, by device ID, for people, and a channel that is closed once that may be
	// somebody else.
	Latest() (Holders, <-chan struct{})
	// Run finds out until ctx is done.
	Run(ctx context.Context)
}

// Holders are who holds devices, by device ID, for people: "claim team/train-0".
type Holders map[string]string

// Has reports whether somebody holds a device. A replica of a device goes with it: both vendors and the pools
// put its number behind two colons.
func (h Holders) Has(id string) bool {
	original, _, _ := strings.Cut(id, "::")
	return h[original] != ""
}

// Withheld are the devices that are not to be handed out, and a channel that is closed once they may be
// others.
func (m *Member) Withheld() (Holders, <-chan struct{}) {
	if m.node.config.Withheld == nil {
		return nil, nil
	}
	return m.node.config.Withheld.Latest()
}
