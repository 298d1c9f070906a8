// SPDX-License-Identifier: Apache-2.0

package deviceplugin_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/plugins/deviceplugin"
	"github.com/tandem-k8s/tandem/test/kubelettest"
)

func TestRegisters(t *testing.T) {
	t.Attr("parity", "sriov/plugins-registry-mode") // where there is no such folder
	dir := kubelettest.Dir(t)
	kubelet := kubelettest.Start(t, dir)
	stop := start(t, dir, preferring{newFake("b", "a")})
	plugin := kubelettest.Await(t, kubelet.Plugins)
	if !plugin.Request.GetOptions().GetGetPreferredAllocationAvailable() {
		t.Errorf("request %v", plugin.Request)
	}
	checkOffer(t, plugin, kubelettest.Plugins(dir), stop)
}

// comesAgain disturbs a plugin three times: each time the kubelet gets the devices over another socket, and
// the newest socket alone is left.
func comesAgain(
	t *testing.T, plugins <-chan *kubelettest.Plugin, sockets string, disturb func(*kubelettest.Plugin),
) {
	t.Helper()
	used := map[string]bool{}
	for range 3 {
		plugin := kubelettest.Await(t, plugins)
		if used[plugin.Socket] {
			t.Fatalf("%s comes twice", plugin.Socket)
		}
		used[plugin.Socket] = true
		if got := ids(kubelettest.Await(t, plugin.Lists)); got != "a" {
			t.Errorf("devices %q", got)
		}
		disturb(plugin)
	}
	kubelettest.Await(t, plugins)
	if left := ourSockets(t, sockets); len(left) != 1 {
		t.Errorf("sockets %v, want the newest alone", left)
	}
}

func TestRegistersAgain(t *testing.T) {
	t.Attr("parity", "all/reregister-on-stream-end")
	t.Attr("parity", "sriov/kubelet-restart-legacy")
	for name, disturb := range map[string]func(*testing.T, *kubelettest.Kubelet, *kubelettest.Plugin){
		"stream ended": func(_ *testing.T, _ *kubelettest.Kubelet, p *kubelettest.Plugin) {
			p.EndStream()
		},
		"connection lost":       func(_ *testing.T, _ *kubelettest.Kubelet, p *kubelettest.Plugin) { p.Close() },
		"kubelet.sock replaced": func(_ *testing.T, k *kubelettest.Kubelet, _ *kubelettest.Plugin) { k.Recreate() },
		"socket deleted": func(t *testing.T, _ *kubelettest.Kubelet, p *kubelettest.Plugin) {
			if err := os.Remove(p.Socket); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := kubelettest.Dir(t)
			kubelet := kubelettest.Start(t, dir)
			start(t, dir, newFake("a"))
			again := func(p *kubelettest.Plugin) { disturb(t, kubelet, p) }
			comesAgain(t, kubelet.Plugins, kubelettest.Plugins(dir), again)
		})
	}
}

func TestKubeletRefuses(t *testing.T) {
	dir := kubelettest.Dir(t)
	kubelet := kubelettest.Start(t, dir)
	kubelet.Refuse(errors.New("not now"))
	kubelet.Refuse(errors.New("not yet"))
	start(t, dir, newFake("a"))
	kubelettest.Await(t, kubelet.Plugins)
	if left := ourSockets(t, kubelettest.Plugins(dir)); len(left) != 1 {
		t.Errorf("sockets %v, want the newest alone", left)
	}
}

func TestKubeletComesLateAndComesBack(t *testing.T) {
	t.Attr("parity", "amd/kubelet-restart")
	t.Attr("parity", "sriov/kubelet-restart-legacy")
	dir := kubelettest.Dir(t)
	start(t, dir, newFake("a"))
	var before string
	for range 3 {
		kubelet := kubelettest.Start(t, dir)
		plugin := kubelettest.Await(t, kubelet.Plugins)
		if plugin.Socket == before {
			t.Errorf("%s registered twice", before)
		}
		before = plugin.Socket
		kubelettest.Await(t, plugin.Lists)
		kubelet.Stop()
		plugin.Close()
	}
}

func TestTwoInstancesDoNotSpin(t *testing.T) {
	dir := kubelettest.Dir(t)
	kubelet := kubelettest.Start(t, dir)
	start(t, dir, newFake("a"))
	start(t, dir, newFake("a"))
	// A kubelet before 1.37 keeps one plugin per resource name: the newer ends the older.
	holder := kubelettest.Await(t, kubelet.Plugins)
	for range 6 {
		next := kubelettest.Await(t, kubelet.Plugins)
		kubelettest.Await(t, holder.Lists)
		holder.EndStream()
		holder = next
	}
}

func TestRemovesStaleSockets(t *testing.T) {
	dir := kubelettest.Dir(t)
	sockets := kubelettest.Plugins(dir)
	const living = "example.com_thing-BBBBBBBBBBBB.sock"
	kept := []string{living, "example.com_thing", "example.com_thing_two-AAAAAAAAAAAA.sock"}
	listener, err := net.Listen("unix", filepath.Join(sockets, living))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for _, name := range append(kept[1:], "example.com_thing-AAAAAAAAAAAA.sock") {
		leave(t, filepath.Join(sockets, name))
	}
	start(t, dir, newFake("a"))
	// Whoever waits for the kubelet has cleaned up: kubelettest.Start would remove all sockets, so it is put
	// there by hand.
	kubelet := kubelettest.Rejoin(t, dir)
	plugin := kubelettest.Await(t, kubelet.Plugins)
	want := append(kept, filepath.Base(plugin.Socket), "kubelet.sock")
	if got := names(t, sockets); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		t.Errorf("sockets %v, want %v", got, want)
	}
}

// The longest names that Kubernetes allows are longer than a socket's may be: each has sockets of its own all
// the same, which a process that comes later finds and removes.
func TestLongNames(t *testing.T) {
	longest := strings.Repeat("example.", 30) + "com/" + strings.Repeat("x", 62)
	dir := kubelettest.Dir(t)
	sockets := kubelettest.Plugins(dir)
	kubelet := kubelettest.Start(t, dir)
	var before []string
	for range 2 {
		found := map[string]string{}
		var stop []func() error
		for _, name := range []string{longest + "a", longest + "b", resource} {
			stop = append(stop, start(t, dir, named{newFake("a"), name}))
			plugin := kubelettest.Await(t, kubelet.Plugins)
			if got := plugin.Request.GetResourceName(); got != name {
				t.Errorf("registered %s, want %s", got, name)
			}
			if got := ids(kubelettest.Await(t, plugin.Lists)); got != "a" {
				t.Errorf("devices %q", got)
			}
			found[plugin.Socket] = name
		}
		if there := names(t, sockets); len(there) != len(found)+1 {
			t.Errorf("sockets %v, beside kubelet.sock; those of earlier processes were %v", there, before)
		}
		for _, end := range stop {
			if err := end(); err != nil {
				t.Errorf("Run: %v", err)
			}
		}
		for socket := range found {
			before = append(before, filepath.Base(socket))
			leave(t, socket)
		}
	}
}

func TestBadInput(t *testing.T) {
	long := filepath.Join("/tmp", strings.Repeat("x", 80))
	for _, c := range []struct {
		name, dir, resource string
		want                []string
	}{
		{"no folder", filepath.Join(t.TempDir(), "none"), resource,
			[]string{"none/device-plugins", "--kubelet-dir"}},
		{"long path", long, resource, []string{"107", "--kubelet-dir"}},
		{"no vendor", "/tmp", "thing", []string{`"thing"`, "vendor.com/kind"}},
		{"path in name", "/tmp", "example.com/../thing", []string{"vendor.com/kind"}},
		{"long name", "/tmp", "example.com/" + strings.Repeat("x", 64), []string{"vendor.com/kind", "63"}},
		{"Kubernetes' own", "/tmp", "example.kubernetes.io/thing", []string{"kubernetes.io/"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			server, err := deviceplugin.New(deviceplugin.Options{KubeletDir: c.dir, Log: logger(t)},
				named{newFake("a"), c.resource})
			if err == nil {
				err = server.Run(context.Background())
			}
			if err == nil {
				t.Fatal("no error")
			}
			for _, part := range c.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q lacks %q", err, part)
				}
			}
		})
	}
}

func TestResourceGivesUp(t *testing.T) {
	dir := kubelettest.Dir(t)
	cause := errors.New("no more devices")
	server, err := deviceplugin.New(deviceplugin.Options{KubeletDir: dir, Log: logger(t)},
		failing{newFake("a"), cause})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Run(context.Background()); !errors.Is(err, cause) {
		t.Errorf("Run: %v", err)
	}
}

func TestFolderRemoved(t *testing.T) {
	dir := kubelettest.Dir(t)
	server, err := deviceplugin.New(deviceplugin.Options{KubeletDir: dir, Log: logger(t)}, newFake("a"))
	if err != nil {
		t.Fatal(err)
	}
	kubelet := kubelettest.Start(t, dir)
	result := make(chan error, 1)
	go func() { result <- server.Run(context.Background()) }()
	kubelettest.Await(t, kubelet.Plugins)
	kubelet.Stop() // an open socket would keep the folder alive
	if err := os.RemoveAll(kubelettest.Plugins(dir)); err != nil {
		t.Fatal(err)
	}
	if err := kubelettest.Await(t, result); err == nil || !strings.Contains(err.Error(), "folder was removed") {
		t.Errorf("Run: %v", err)
	}
}

type named struct {
	*fake
	name string
}

func (n named) Name() string { return n.name }

type failing struct {
	*fake
	cause error
}

func (f failing) Watch(context.Context, func([]deviceplugin.Device)) error { return f.cause }
