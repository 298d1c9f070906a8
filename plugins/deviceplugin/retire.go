package deviceplugin

import (
	"context"
	"time"
)

// retireAfter is how long a device that is gone is listed at least. No Allocate lasts as long that began
// while it was healthy.
const retireAfter = 30 * time.Second

// stayRetiring takes devices out of the list that are gone and that the kubelet no longer needs, until ctx is
// done. They would count as capacity: where the VFs of a node became fewer the Topology Manager would take a
// request for all of them for one that fits on a NUMA node.
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
