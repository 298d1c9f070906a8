package deviceplugin

import (
	"context"
	"fmt"
	"time"
)

// Observer is told how a Server fares. Its methods return at once.
type Observer interface {
	// Offered: the resource has devices, so that the kubelet is to know it; Registered: the kubelet asked for
	// them; Unregistered: it goes by them no longer. It will be told again, when another plugin that took the
	// resource over is gone.
	Offered(resource string)
	Registered(resource string)
	Unregistered(resource string, cause error)
	// Preferred: a GetPreferredAllocation was answered.
	Preferred(resource string, took time.Duration)
}

// unobserved is an Observer that does nothing.
type unobserved struct{}

func (unobserved) Offered(string)                  {}
func (unobserved) Registered(string)               {}
func (unobserved) Unregistered(string, error)      {}
func (unobserved) Preferred(string, time.Duration) {}

// Alive reports whether a Preferrer hangs. It waits until ctx is done at most.
func (s *Server) Alive(ctx context.Context) error {
	if s.asking.Await(ctx) != nil {
		return fmt.Errorf("a preferred allocation of %s hangs: %w", s.resource.Name(), context.Cause(ctx))
	}
	return nil
}
