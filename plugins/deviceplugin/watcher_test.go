// SPDX-License-Identifier: Apache-2.0

package deviceplugin_test

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

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

	plugin := kubelettest.Await(t, watcher.Plugins)
	if r := plugin.Request; r.GetVersion() != v1beta1.Version || r.GetResourceName() != resource {
		t.Errorf("introduced as %v", r)
	}
	if !socketNames.MatchString(filepath.Base(plugin.Socket)) ||
		filepath.Dir(plugin.Socket) != kubelettest.Registry(dir) {
		t.Errorf("socket %s", plugin.Socket)
	}
	if info, err := os.Stat(plugin.Socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket %v, %v", info, err)
	}
	if !plugin.Options.GetGetPreferredAllocationAvailable() {
		t.Errorf("options %v", plugin.Options)
	}
	if got := ids(kubelettest.Await(t, plugin.Lists)); got != "a b" {
		t.Errorf("devices %s", got)
	}
	if err := stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
	if left := ourSockets(t, kubelettest.Registry(dir)); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
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
			used := map[string]bool{}
			for range 3 {
				plugin := kubelettest.Await(t, watcher.Plugins)
				if used[plugin.Socket] {
					t.Fatalf("%s found twice", plugin.Socket)
				}
				used[plugin.Socket] = true
				if got := ids(kubelettest.Await(t, plugin.Lists)); got != "a" {
					t.Errorf("devices %q", got)
				}
				disturb(t, plugin)
			}
			kubelettest.Await(t, watcher.Plugins)
			if left := ourSockets(t, kubelettest.Registry(dir)); len(left) != 1 {
				t.Errorf("sockets %v, want the newest alone", left)
			}
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
