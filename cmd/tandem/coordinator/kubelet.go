// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// kubeletTimeout is how long to wait for the kubelet: it answers in milliseconds, and its limiter lets nobody
// wait longer.
const kubeletTimeout = time.Second

// Kubelet is whether the kubelet answers.
type Kubelet struct {
	State string `json:"state"`         // one of the states of a kubelet
	Why   string `json:"why,omitempty"` // a sentence, where it is not up
}

// The states of a kubelet.
const (
	KubeletUp      = "up"
	KubeletDown    = "down"
	KubeletUnknown = "unknown" // who asks does not see its socket
)

// askKubelet asks which devices the kubelet has to give; nil where it does not tell.
func askKubelet(ctx context.Context, dir string) (kubelet.Devices, Kubelet) {
	socket := kubelet.PodResourcesSocket(dir)
	if state := reach(ctx, socket); state.State != KubeletUp {
		return nil, state
	}
	pods, err := kubelet.NewPodResources(dir)
	if err != nil {
		return nil, Kubelet{KubeletUnknown, err.Error()}
	}
	defer pods.Close()
	devices, err := pods.Allocatable(ctx)
	switch code := status.Code(err); {
	case err == nil:
		return devices, Kubelet{State: KubeletUp}
	case code == codes.Unavailable, code == codes.DeadlineExceeded:
		return nil, Kubelet{KubeletDown, "it does not answer at " + socket}
	default: // one that does not tell this
		return nil, Kubelet{State: KubeletUp}
	}
}

// reach tells whether somebody listens at the kubelet's socket.
func reach(ctx context.Context, socket string) Kubelet {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err == nil {
		_ = conn.Close() // nothing was said
		return Kubelet{State: KubeletUp}
	}
	_, folder := os.Stat(filepath.Dir(socket))
	switch {
	case errors.Is(err, fs.ErrPermission):
		return Kubelet{KubeletUnknown, "no right to ask at " + socket}
	case errors.Is(err, fs.ErrNotExist) && folder != nil: // not in this container, maybe
		return Kubelet{KubeletUnknown, "there is no folder " + filepath.Dir(socket)}
	default:
		return Kubelet{KubeletDown, "nobody listens at " + socket}
	}
}
