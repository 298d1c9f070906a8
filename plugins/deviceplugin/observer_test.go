// SPDX-License-Identifier: Apache-2.0

package deviceplugin_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/plugins/deviceplugin"
	"github.com/tandem-k8s/tandem/test/kubelettest"
)

// observed is a RegistrationObserver that hands on what it is told.
type observed chan string

func (o observed) Offered(name string)    { o <- "offered " + name }
func (o observed) Registered(name string) { o <- "registered " + name }
func (o observed) Unregistered(name string, cause error) {
	if cause == nil {
		name = "without a cause"
	}
	o <- "unregistered " + name
}
func (o observed) Preferred(name string, took time.Duration) {
	if took <= 0 {
		name = "nothing"
	}
	o <- "preferred " + name
}

func (o observed) expect(t *testing.T, want ...string) {
	t.Helper()
	for _, w := range want {
		if got := kubelettest.Await(t, o); got != w+" "+resource {
			t.Errorf("observed %q, want %q", got, w+" "+resource)
		}
	}
}

func TestObserver(t *testing.T) {
	dir := kubelettest.Dir(t)
	kubelet := kubelettest.Start(t, dir)
	seen, hang := make(observed, 16), make(chan struct{})
	f := newFake("a", "b")
	f.prefer = func(_ context.Context, available, _ []string, size int) []string {
		if size == 2 {
			<-hang
		}
		return slices.Clone(available[:size])
	}
	server, err := deviceplugin.New(deviceplugin.Options{
		KubeletDir: dir, Registration: deviceplugin.Auto, Preferred: true, Observer: seen,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}, preferring{f})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	plugin := kubelettest.Await(t, kubelet.Plugins)
	seen.expect(t, "offered", "registered")
	plugin.EndStream()
	seen.expect(t, "unregistered", "registered")
	plugin = kubelettest.Await(t, kubelet.Plugins)
	if _, err := plugin.Prefer(t.Context(), []string{"a", "b"}, nil, 1); err != nil {
		t.Fatal(err)
	}
	seen.expect(t, "preferred")
	if err := server.Alive(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := plugin.Prefer(t.Context(), []string{"a", "b"}, nil, 2); err != nil {
		t.Fatal(err)
	}
	seen.expect(t, "preferred")
	short, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer stop()
	if err := server.Alive(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a Preferrer that hangs: %v", err)
	}
	close(hang)
	if err := server.Alive(t.Context()); err != nil {
		t.Error(err)
	}
	cancel()
	if err := kubelettest.Await(t, ended); err != nil {
		t.Error(err)
	}
	seen.expect(t, "unregistered")
}
