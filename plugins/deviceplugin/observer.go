// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"fmt"
	"time"
)

// Observer receives events of a Server. Its methods must return immediately.
type Observer interface {
	// Offered: the resource has devices, so the kubelet should know it; Registered: the kubelet opened the
	// device list stream; Unregistered: the kubelet no longer uses this plugin. The server registers again
	// when another plugin that took over the resource is gone.
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

// Alive reports whether a Preferrer is responsive. It waits at most until ctx is done.
func (s *Server) Alive(ctx context.Context) error {
	if s.asking.Await(ctx) != nil {
		return fmt.Errorf("a preferred allocation of %s hangs: %w", s.resource.Name(), context.Cause(ctx))
	}
	return nil
}
