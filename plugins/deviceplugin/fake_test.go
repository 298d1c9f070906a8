// SPDX-License-Identifier: Apache-2.0

package deviceplugin_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/plugins/container"
	"github.com/tandem-k8s/tandem/plugins/deviceplugin"
	"github.com/tandem-k8s/tandem/test/kubelettest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const resource = "example.com/thing"

// socketNames is how our sockets are called.
var socketNames = regexp.MustCompile(`^example\.com_thing-[A-Z2-7]{12}\.sock$`)

// fake is a Resource whose devices and answers the test decides.
type fake struct {
	lists    chan []deviceplugin.Device
	allocate func(ids []string) (container.Edits, error)
	prefer   func(ctx context.Context, available, mustInclude []string, size int) []string
	failure  error // of Prefer
	alone    func(available, mustInclude []string, size int) []string
}

func newFake(ids ...string) *fake {
	f := &fake{lists: make(chan []deviceplugin.Device, 16)}
	f.lists <- devices(ids...)
	f.allocate = func([]string) (container.Edits, error) {
		return container.Edits{}, nil
	}
	return f
}

func devices(ids ...string) []deviceplugin.Device {
	list := make([]deviceplugin.Device, 0, len(ids))
	for _, id := range ids {
		list = append(list, deviceplugin.Device{ID: id, Healthy: true})
	}
	return list
}

func (f *fake) Name() string { return resource }

func (f *fake) Watch(ctx context.Context, publish func([]deviceplugin.Device)) error {
	for {
		select {
		case list := <-f.lists:
			publish(list)
		case <-ctx.Done():
			return nil
		}
	}
}

func (f *fake) Allocate(_ context.Context, ids []string) (container.Edits, error) {
	return f.allocate(ids)
}

// preferring is a fake that is a Preferrer too.
type preferring struct{ *fake }

func (p preferring) Prefer(ctx context.Context, q *api.PreferRequest) ([]string, error) {
	if q.GetResource() != resource {
		return nil, fmt.Errorf("asked for %s", q.GetResource())
	}
	return p.prefer(ctx, q.GetAvailable(), q.GetMustInclude(), int(q.GetSize())), p.failure
}

func (p preferring) Alone(q *api.PreferRequest, cause error) []string {
	if p.alone == nil || cause == nil {
		return nil
	}
	return p.alone(q.GetAvailable(), q.GetMustInclude(), int(q.GetSize()))
}

// start runs a server until the test ends or stop is called; stop returns what Run returned.
func start(t *testing.T, dir string, r deviceplugin.Resource) (stop func() error) {
	t.Helper()
	_, stop = startWith(t, deviceplugin.Options{
		KubeletDir: dir, Registration: deviceplugin.Auto, Preferred: true, Log: logger(t),
	}, r)
	return stop
}

func startWith(
	t *testing.T, options deviceplugin.Options, r deviceplugin.Resource,
) (server *deviceplugin.Server, stop func() error) {
	t.Helper()
	server, err := deviceplugin.New(options, r)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- server.Run(ctx) }()
	stopped := false
	stop = func() error {
		cancel()
		stopped = true
		return kubelettest.Await(t, result)
	}
	t.Cleanup(func() {
		if !stopped {
			if err := stop(); err != nil {
				t.Errorf("Run: %v", err)
			}
		}
	})
	return server, stop
}

func logger(t *testing.T) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }

// ids lists the IDs of a device list in its order, unhealthy ones with a "!".
func ids(list []*v1beta1.Device) string {
	names := make([]string, 0, len(list))
	for _, d := range list {
		name := d.GetID()
		if d.GetHealth() != v1beta1.Healthy {
			name += "!"
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

// names lists a folder.
func names(t *testing.T, dir string) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		list = append(list, entry.Name())
	}
	return list
}

// ourSockets lists the names of our sockets in a folder.
func ourSockets(t *testing.T, dir string) []string {
	t.Helper()
	return slices.DeleteFunc(names(t, dir), func(name string) bool { return !socketNames.MatchString(name) })
}

// leave makes a socket as a process leaves it that is killed.
func leave(t *testing.T, path string) {
	t.Helper()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
}

// checkOffer checks what the kubelet gets of a plugin with preferences and the devices a and b, whose socket
// is in a folder, and that nothing is left of it at its end.
func checkOffer(t *testing.T, plugin *kubelettest.Plugin, folder string, stop func() error) {
	t.Helper()
	if r := plugin.Request; r.GetVersion() != v1beta1.Version || r.GetResourceName() != resource {
		t.Errorf("request %v", r)
	}
	if o := plugin.Options; !o.GetGetPreferredAllocationAvailable() || o.GetPreStartRequired() {
		t.Errorf("options %v", o)
	}
	if !socketNames.MatchString(filepath.Base(plugin.Socket)) || filepath.Dir(plugin.Socket) != folder {
		t.Errorf("socket %s", plugin.Socket)
	}
	if info, err := os.Stat(plugin.Socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket %v, %v", info, err)
	}
	if got := ids(kubelettest.Await(t, plugin.Lists)); got != "a b" {
		t.Errorf("devices %s", got)
	}
	if err := stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
	if left := ourSockets(t, folder); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
