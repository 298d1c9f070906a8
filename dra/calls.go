// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/tandem-k8s/tandem/dra/pool"
)

// calls are the kubelet's calls in flight. The zero value accepts calls.
type calls struct {
	mu     sync.Mutex
	ended  bool
	active sync.WaitGroup
}

// begin accepts a call; it returns false after close.
func (c *calls) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended {
		c.active.Add(1)
	}
	return !c.ended
}

// close rejects new calls and waits for the calls in flight, for at most limit.
func (c *calls) close(limit time.Duration) {
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		c.active.Wait()
	}()
	select {
	case <-answered:
	case <-time.After(limit): // a hanging call ends with the process
	}
}

// intercept counts the calls, and derives from them whether the kubelet knows the driver.
func (d *Driver) intercept(
	ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler,
) (any, error) {
	if !d.calls.begin() {
		return nil, status.Error(codes.Unavailable, "the driver ends; another one follows")
	}
	defer d.calls.active.Done()
	answer, err := handle(ctx, request)
	if told, ok := request.(*registerapi.RegistrationStatus); ok && told.GetPluginRegistered() {
		d.Log.Info("the kubelet knows the driver")
		if d.Observer != nil {
			d.Observer.Registered(pool.Driver)
		}
		poke(d.again) // a starting kubelet deletes the published slices
	}
	return answer, err
}
