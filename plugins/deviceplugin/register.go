// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// registerLimit is the timeout of a Register call, during which the kubelet calls back.
const registerLimit = 10 * time.Second

// register registers a socket in the kubelet's directory. The socket must already be served: before its reply
// the kubelet asks there for the plugin's options and ignores those in the request
// (pkg/kubelet/cm/devicemanager/manager.go).
func (s *Server) register(ctx context.Context, socket string) error {
	ctx, cancel := context.WithTimeout(ctx, registerLimit)
	defer cancel()
	conn, err := grpc.NewClient("unix:"+s.dir+"/"+kubeletSocket,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("open kubelet.sock: %w", err)
	}
	defer func() { _ = conn.Close() }()
	_, err = v1beta1.NewRegistrationClient(conn).Register(ctx, &v1beta1.RegisterRequest{
		Version:      v1beta1.Version,
		Endpoint:     socket,
		ResourceName: s.resource.Name(),
		Options:      s.options(),
	})
	if err != nil {
		return fmt.Errorf("register %s: %w", socket, err)
	}
	return nil
}

const (
	firstPause   = 100 * time.Millisecond
	longestPause = 30 * time.Second
	// stableAfter exceeds longestPause, so that two instances that end each other's registration (a rolling
	// update with surge, on a kubelet before 1.37) do not count their own turns as stable and slow each other
	// down.
	stableAfter = 2 * longestPause
)

// backoff computes the pause between two registrations. The zero value is ready to use.
type backoff struct{ pause time.Duration }

// next returns the pause after a session of the given duration: twice the previous pause, plus up to a
// quarter so that two plugins do not stay in step.
func (b *backoff) next(lasted time.Duration) time.Duration {
	switch {
	case b.pause == 0 || lasted >= stableAfter:
		b.pause = firstPause
	default:
		b.pause = min(2*b.pause, longestPause)
	}
	return b.pause + rand.N(b.pause/4)
}
