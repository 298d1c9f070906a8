package kubelettest

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"google.golang.org/grpc"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Registry is the folder below a kubelet folder in which the plugin watcher looks for sockets.
func Registry(dir string) string { return filepath.Join(dir, "plugins_registry") }

// Watcher is a running plugin watcher.
type Watcher struct {
	Plugins chan *Plugin // every plugin that it found

	t      *testing.T
	events *fsnotify.Watcher
	done   chan struct{}
	refuse chan string
}

// StartWatcher looks at the sockets in the registry folder, which it makes, and at every new one, until the test ends.
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
	there, err := filepath.Glob(filepath.Join(Registry(dir), "*"))
	if err != nil {
		t.Fatal(err)
	}
	w := &Watcher{Plugins: make(chan *Plugin, 64), t: t, events: events, done: make(chan struct{}), refuse: make(chan string, 64)}
	go func() {
		defer close(w.done)
		for _, socket := range there {
			w.find(socket)
		}
		for event := range events.Events {
			if event.Has(fsnotify.Create) {
				w.find(event.Name)
			}
		}
	}()
	t.Cleanup(w.Stop)
	return w
}

// Stop ends the watcher. What it found stays connected.
func (w *Watcher) Stop() {
	_ = w.events.Close()
	<-w.done
}

// Refuse makes the watcher refuse the next plugin.
func (w *Watcher) Refuse(why string) { w.refuse <- why }

// answerTime is how long a socket may take to answer. The event of its creation comes before anybody listens on it.
const answerTime = 2 * time.Second

// find does what the kubelet does with a socket: it asks who is there, calls the plugin and says what came of it.
func (w *Watcher) find(socket string) {
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	conn, err := dial(socket)
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
		w.connect(ctx, socket, info)
	}
	if _, err := client.NotifyRegistrationStatus(ctx, status); err != nil {
		w.t.Logf("plugin at %s did not wait for an answer: %v", socket, err)
	}
}

func (w *Watcher) connect(ctx context.Context, socket string, info *registration.PluginInfo) {
	if info.GetType() != registration.DevicePlugin {
		w.t.Errorf("plugin at %s is a %q", socket, info.GetType())
	}
	if info.GetEndpoint() != "" {
		socket = info.GetEndpoint()
	}
	request := &v1beta1.RegisterRequest{Version: info.GetSupportedVersions()[0], Endpoint: filepath.Base(socket), ResourceName: info.GetName()}
	p, err := connect(ctx, socket, request)
	if err != nil {
		w.t.Error(err)
		return
	}
	w.t.Cleanup(p.Close)
	w.Plugins <- p
}
