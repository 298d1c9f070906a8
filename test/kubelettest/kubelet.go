// SPDX-License-Identifier: Apache-2.0

// Package kubelettest implements the kubelet's side of the device plugin API for tests: a Registration server
// on a unix socket that calls registered plugins like the kubelet. The package makes no allocation decisions;
// test/kubernetes/kubelet uses the real managers.
package kubelettest

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/test/playground/kubelet"
)

// Limit is the timeout of Await.
const Limit = 30 * time.Second

// Await receives from c. It fails the test after Limit or if c is closed.
func Await[T any](t testing.TB, c <-chan T) T {
	t.Helper()
	select {
	case v, ok := <-c:
		if !ok {
			t.Fatal("channel closed")
		}
		return v
	case <-time.After(Limit):
		t.Fatalf("nothing happened for %s", Limit)
		panic("unreachable")
	}
}

// Dir creates a kubelet directory with a path short enough for sockets and removes it after the test.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "k")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Mkdir(Plugins(dir), 0o750); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Plugins returns the directory of device plugin sockets in a kubelet directory.
func Plugins(dir string) string { return filepath.Join(dir, "device-plugins") }

// Kubelet is a running fake kubelet.
type Kubelet struct {
	v1beta1.UnimplementedRegistrationServer
	Plugins chan *Plugin // all registered plugins

	t      testing.TB
	dir    string
	server *grpc.Server
	refuse chan error
}

// Start removes all sockets, like the kubelet at its start, and accepts registrations until the end of the
// test or Stop.
func Start(t testing.TB, dir string) *Kubelet {
	t.Helper()
	removeSockets(t, Plugins(dir))
	return Rejoin(t, dir)
}

// Rejoin is Start without the removal of sockets.
func Rejoin(t testing.TB, dir string) *Kubelet {
	t.Helper()
	k := &Kubelet{Plugins: make(chan *Plugin, 64), t: t, dir: dir, refuse: make(chan error, 64)}
	k.Recreate()
	t.Cleanup(k.Stop)
	return k
}

// Recreate replaces kubelet.sock. Open streams stay open.
func (k *Kubelet) Recreate() {
	k.t.Helper()
	next, socket := filepath.Join(k.dir, "next"), filepath.Join(Plugins(k.dir), "kubelet.sock")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: next, Net: "unix"})
	if err != nil {
		k.t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	if err := os.Rename(next, socket); err != nil {
		k.t.Fatal(err)
	}
	old := k.server
	k.server = grpc.NewServer()
	v1beta1.RegisterRegistrationServer(k.server, k)
	go func() { _ = k.server.Serve(listener) }()
	if old != nil {
		old.Stop()
	}
}

// Refuse makes the next registration fail.
func (k *Kubelet) Refuse(err error) { k.refuse <- err }

// Stop ends the kubelet like a crash: the socket file remains. Stop closes plugins not yet received from
// Plugins.
func (k *Kubelet) Stop() {
	k.server.Stop()
	for {
		select {
		case p := <-k.Plugins:
			p.Close()
		default:
			return
		}
	}
}

// Register implements the Registration service. Like the kubelet, Register calls the plugin before it
// returns.
func (k *Kubelet) Register(ctx context.Context, request *v1beta1.RegisterRequest) (*v1beta1.Empty, error) {
	select {
	case err := <-k.refuse:
		return nil, err
	default:
	}
	p, err := kubelet.Connect(ctx, filepath.Join(Plugins(k.dir), request.GetEndpoint()), request)
	if err != nil {
		return nil, err
	}
	k.t.Cleanup(p.Close)
	k.Plugins <- p
	return &v1beta1.Empty{}, nil
}

func removeSockets(t testing.TB, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if entry.Type()&os.ModeSocket != 0 {
			if err := os.Remove(filepath.Join(dir, entry.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
		}
	}
}
