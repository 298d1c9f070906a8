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

// registerLimit bounds a Register call. The kubelet calls us back inside it.
const registerLimit = 10 * time.Second

// register tells the kubelet of a socket in its folder. The socket has to be served already: before it
// answers, the kubelet asks there for our options and does not look at those in the request
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
	// stableAfter is longer than longestPause: two instances that end each other's registration (a rolling
	// update with surge, on a kubelet before 1.37) then never take their own turns for stability and slow each
	// other down.
	stableAfter = 2 * longestPause
)

// backoff counts the time between two registrations. The zero value is ready.
type backoff struct{ pause time.Duration }

// next returns how long to wait after a session that lasted this long: twice the time before, with up to a
// quarter more so that two plugins do not stay in step.
func (b *backoff) next(lasted time.Duration) time.Duration {
	switch {
	case b.pause == 0 || lasted >= stableAfter:
		b.pause = firstPause
	default:
		b.pause = min(2*b.pause, longestPause)
	}
	return b.pause + rand.N(b.pause/4)
}
