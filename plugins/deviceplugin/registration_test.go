// SPDX-License-Identifier: Apache-2.0

package deviceplugin_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/plugins/deviceplugin"
	"github.com/tandem-k8s/tandem/test/kubelettest"
)

// Where the folder of the plugin watcher exists the plugin waits there to be found, and registers nowhere
// else: two registrations would be two plugins to the kubelet.
func TestIsFoundByTheWatcher(t *testing.T) {
	t.Attr("parity", "sriov/plugins-registry-mode")
	dir := kubelettest.Dir(t)
	kubelet := kubelettest.Start(t, dir)
	watcher := kubelettest.StartWatcher(t, dir)
	stop := start(t, dir, preferring{newFake("b", "a")})

	checkOffer(t, kubelettest.Await(t, watcher.Plugins), kubelettest.Registry(dir), stop)
	select {
	case p := <-kubelet.Plugins:
		t.Errorf("registered at kubelet.sock too, as %s", p.Socket)
	default:
	}
}

func TestIsFoundAgain(t *testing.T) {
	for name, disturb := range map[string]func(*testing.T, *kubelettest.Plugin){
		"stream ended":    func(_ *testing.T, p *kubelettest.Plugin) { p.EndStream() },
		"connection lost": func(_ *testing.T, p *kubelettest.Plugin) { p.Close() },
		"socket deleted": func(t *testing.T, p *kubelettest.Plugin) {
			if err := os.Remove(p.Socket); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := kubelettest.Dir(t)
			watcher := kubelettest.StartWatcher(t, dir)
			start(t, dir, newFake("a"))
			comesAgain(t, watcher.Plugins, kubelettest.Registry(dir), func(p *kubelettest.Plugin) { disturb(t, p) })
		})
	}
}

func TestWatcherRefuses(t *testing.T) {
	dir := kubelettest.Dir(t)
	watcher := kubelettest.StartWatcher(t, dir)
	watcher.Refuse("not now")
	watcher.Refuse("not yet")
	start(t, dir, newFake("a"))
	kubelettest.Await(t, watcher.Plugins)
	if left := ourSockets(t, kubelettest.Registry(dir)); len(left) != 1 {
		t.Errorf("sockets %v, want the newest alone", left)
	}
}

// A kubelet that is away is waited for on one and the same socket, however long that takes; one that comes
// back finds a new one.
func TestWatcherComesLateAndComesBack(t *testing.T) {
	dir := kubelettest.Dir(t)
	if err := os.Mkdir(kubelettest.Registry(dir), 0o750); err != nil {
		t.Fatal(err)
	}
	start(t, dir, newFake("a"))
	var before string
	for range 3 {
		watcher := kubelettest.StartWatcher(t, dir)
		plugin := kubelettest.Await(t, watcher.Plugins)
		if plugin.Socket == before {
			t.Errorf("%s found twice", before)
		}
		before = plugin.Socket
		kubelettest.Await(t, plugin.Lists)
		watcher.Stop()
		plugin.Close()
		kubelettest.AwaitRemoved(t, plugin) // a kubelet that is back sooner finds the old socket as it dies
	}
}

func TestRegistration(t *testing.T) {
	for _, way := range []deviceplugin.Registration{
		deviceplugin.Register, deviceplugin.Watcher, deviceplugin.Auto,
	} {
		var read deviceplugin.Registration
		text, err := way.MarshalText()
		if err == nil {
			err = read.UnmarshalText(text)
		}
		if err != nil || read != way {
			t.Errorf("%s is read as %q, %v", way, read, err)
		}
	}
	if err := new(deviceplugin.Registration).UnmarshalText([]byte("both")); err == nil {
		t.Error("no error for an unknown way")
	}
}

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
	server, end := startWith(t, deviceplugin.Options{
		KubeletDir: dir, Registration: deviceplugin.Auto, Preferred: true, Observer: seen, Log: logger(t),
	}, preferring{f})
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
	if err := end(); err != nil {
		t.Error(err)
	}
	seen.expect(t, "unregistered")
}
