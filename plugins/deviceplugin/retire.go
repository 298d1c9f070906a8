// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"time"
)

// retireAfter is the minimum time for which a gone device stays listed. No Allocate that began while the
// device was healthy takes as long.
const retireAfter = 30 * time.Second

// stayRetiring removes gone devices that the kubelet no longer needs from the list, until ctx is done.
// Otherwise they would count as capacity: after a reduction of a node's VFs the Topology Manager would assume
// that a request for all VFs fits on a NUMA node.
func (s *Server) stayRetiring(ctx context.Context) error {
	ticker := time.NewTicker(retireAfter)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			s.retire()
		case <-ctx.Done():
			return nil
		}
	}
}

func (s *Server) retire() {
	if s.needed == nil || !s.devices.hasGone() {
		return
	}
	needed, err := s.needed()
	if err != nil {
		s.log.Warn("keep devices listed that are gone", "error", err)
		return
	}
	if retired := s.devices.retire(needed); len(retired) > 0 {
		s.log.Info("no longer list devices that are gone", "devices", retired)
	}
}
