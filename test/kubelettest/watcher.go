// SPDX-License-Identifier: Apache-2.0

package kubelettest

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/fsnotify/fsnotify"
	"google.golang.org/grpc"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/tandem-k8s/tandem/test/playground/kubelet"
)

// Registry returns the directory of the plugin watcher in a kubelet directory.
func Registry(dir string) string { return filepath.Join(dir, "plugins_registry") }

// Watcher is a running plugin watcher.
type Watcher struct {
	Plugins chan *Plugin // all registered plugins

	t      *testing.T
	events *fsnotify.Watcher
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup
	refuse chan string
}

// StartWatcher creates the registry directory and registers the plugins of all existing and new sockets until
// the end of the test.
func StartWatcher(t *testing.T, dir string) *Watcher {
	t.Helper()
	if err := os.MkdirAll(Registry(dir), 0o750); err != nil {
		t.Fatal(err)
	}
	events, err := fsnotify.NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	if err := events.Add(Registry(dir)); err != nil {
		t.Fatal(err)
	}
	existing, err := filepath.Glob(filepath.Join(Registry(dir), "*"))
	if err != nil {
		t.Fatal(err)
	}
	w := &Watcher{Plugins: make(chan *Plugin, 64), t: t, events: events, refuse: make(chan string, 64)}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	w.work.Go(func() {
		for _, socket := range existing {
			w.work.Go(func() { w.register(socket) })
		}
		for event := range events.Events {
			if event.Has(fsnotify.Create) {
				w.work.Go(func() { w.register(event.Name) })
			}
		}
	})
	t.Cleanup(w.Stop)
	return w
}

// Stop ends the watcher. Registered plugins stay connected.
func (w *Watcher) Stop() {
	w.cancel()
	_ = w.events.Close()
	w.work.Wait()
}

// Refuse makes the watcher refuse the next plugin.
func (w *Watcher) Refuse(why string) { w.refuse <- why }

// register registers the plugin of a socket like the kubelet: GetInfo, calls to the plugin,
// NotifyRegistrationStatus. Each socket has a goroutine, so that a dead socket does not delay others.
func (w *Watcher) register(socket string) {
	ctx, cancel := context.WithTimeout(w.ctx, kubelet.AnswerTime)
	defer cancel()
	conn, err := kubelet.Dial(socket)
	if err != nil {
		w.t.Error(err)
		return
	}
	defer func() { _ = conn.Close() }()
	client := registration.NewRegistrationClient(conn)
	info, err := client.GetInfo(ctx, &registration.InfoRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return // dead
	}
	status := &registration.RegistrationStatus{PluginRegistered: true}
	select {
	case why := <-w.refuse:
		status = &registration.RegistrationStatus{Error: why}
	default:
		if err := w.connect(ctx, socket, info); err != nil {
			w.t.Logf("plugin at %s went away: %v", socket, err)
			status = &registration.RegistrationStatus{Error: err.Error()}
		}
	}
	if _, err := client.NotifyRegistrationStatus(ctx, status); err != nil {
		w.t.Logf("plugin at %s did not wait for an answer: %v", socket, err)
	}
}

func (w *Watcher) connect(ctx context.Context, socket string, info *registration.PluginInfo) error {
	if info.GetType() != registration.DevicePlugin {
		w.t.Errorf("plugin at %s is a %q", socket, info.GetType())
	}
	if info.GetEndpoint() != "" {
		socket = info.GetEndpoint()
	}
	request := &v1beta1.RegisterRequest{
		Version: info.GetSupportedVersions()[0], Endpoint: filepath.Base(socket), ResourceName: info.GetName(),
	}
	p, err := kubelet.Connect(ctx, socket, request)
	if err != nil {
		return err
	}
	w.t.Cleanup(p.Close)
	w.Plugins <- p
	return nil
}
