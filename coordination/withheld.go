// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"
	"strings"
)

// Withheld lists existing devices that plugins must not assign, because they are assigned in another way.
type Withheld interface {
	// Latest returns the holders of devices, by device ID, for people, and a channel that is closed after the
	// next change.
	Latest() (Holders, <-chan struct{})
	// Run updates the list until ctx is done.
	Run(ctx context.Context)
}

// Holders maps device IDs to their holders, for people: "claim team/train-0".
type Holders map[string]string

// Has reports whether a device has a holder. A holder of a device also holds its replicas: both vendors and
// the pools append the number of a replica after two colons.
func (h Holders) Has(id string) bool {
	original, _, _ := strings.Cut(id, "::")
	return h[original] != ""
}

// Withheld returns the devices that must not be assigned, and a channel that is closed after the next change.
func (m *Member) Withheld() (Holders, <-chan struct{}) {
	if m.node.config.Withheld == nil {
		return nil, nil
	}
	return m.node.config.Withheld.Latest()
}
