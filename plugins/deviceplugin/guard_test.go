// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-k8s/tandem/plugins/container"
)

// watched is a plugin with the healthy devices a and b, beside a kubelet and in a folder with sockets.
type watched struct {
	listeners []net.Listener // of an earlier plugin
	t         *testing.T
	dir       string
	guard     *guard

	mu    sync.Mutex
	cause error    // that the resource is not registered any more; nil while it is
	has   []string // the kubelet
	err   error
	asked int
}

func (w *watched) Name() string                                { return "amd.com/gpu" }
func (w *watched) Watch(context.Context, func([]Device)) error { return nil }
func (w *watched) Allocate(context.Context, []string) (container.Edits, error) {
	return container.Edits{}, nil
}

func (w *watched) Offered(string)                  {}
func (w *watched) Registered(string)               {}
func (w *watched) Preferred(string, time.Duration) {}

func (w *watched) Unregistered(_ string, cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cause = cause
}

// unregistered is why the resource is not registered any more; nil while it is.
func (w *watched) unregistered() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cause
}

func (w *watched) allocatable(context.Context, string) ([]string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked++
	return w.has, w.err
}

func (w *watched) kubeletHas(ids ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.has = ids
}

func (w *watched) kubeletFails(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.has, w.err = nil, err
}

func (w *watched) questions() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked
}

func (w *watched) path(name string) string { return filepath.Join(w.dir, "device-plugins", name) }

// wantEnd: the plugin is to register again, for a reason; nil for none.
func (w *watched) wantEnd(want error) {
	w.t.Helper()
	synctest.Wait()
	var got error
	select {
	case got = <-w.guard.lost:
	default:
	}
	if !errors.Is(got, want) {
		w.t.Errorf("register again: %v, want %v", got, want)
	}
}

// wantRival: the kubelet is said to go by another plugin, at a socket, and that is left to it.
func (w *watched) wantRival(socket string) {
	w.t.Helper()
	w.wantEnd(nil)
	if cause := w.unregistered(); cause == nil || !strings.Contains(cause.Error(), "/"+socket+"]") {
		w.t.Errorf("not registered: %v, want one at %s", cause, socket)
	}
}

// wantNothing: the kubelet goes by this plugin.
func (w *watched) wantNothing() {
	w.t.Helper()
	w.wantEnd(nil)
	if cause := w.unregistered(); cause != nil {
		w.t.Errorf("not registered: %v", cause)
	}
}

// listen makes a socket of another plugin, by the clock so many seconds after ours.
func (w *watched) listen(name string, after int) net.Listener {
	w.t.Helper()
	listener, err := net.Listen("unix", w.path(name))
	if err != nil {
		w.t.Fatal(err)
	}
	made := time.Date(2026, 1, 1, 0, 0, after, 0, time.UTC)
	if err := os.Chtimes(w.path(name), made, made); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { listener.Close() })
	return listener
}

// wait lets time pass for so many looks.
func wait(looks int) { <-time.After(time.Duration(looks) * lookPause * 5 / 4) }

func TestGuard(t *testing.T) {
	for name, story := range map[string]func(*watched){
		"all is well": func(w *watched) {
			defer w.wantNothing()
			wait(360)
			if w.questions() < 350 || w.questions() > 460 {
				w.t.Errorf("asked %d times in more than an hour", w.questions())
			}
		},
		"a list on its way": func(w *watched) {
			defer w.wantNothing()
			w.kubeletHas("a")
			for w.questions() == 0 {
				<-time.After(settle / 10)
			}
			w.kubeletHas("b", "a")
			wait(5)
		},
		"a kubelet that does not say": func(w *watched) {
			defer w.wantNothing()
			w.kubeletFails(errors.New("unknown method"))
			wait(50)
		},
		"a kubelet that has not taken the first list yet": func(w *watched) {
			defer w.wantNothing()
			w.kubeletHas()
			<-time.After(behindLimit / 2)
			w.kubeletHas("a", "b")
			wait(5)
		},
		"a kubelet that is behind with a list": func(w *watched) {
			defer w.wantNothing()
			wait(2)
			w.guard.devices.publish([]Device{{ID: "a", Healthy: true}})
			w.guard.devices.publish([]Device{{ID: "a", Healthy: true}, {ID: "c", Healthy: true}})
			<-time.After(behindLimit / 2)
			w.kubeletHas("a")
			<-time.After(behindLimit * 3 / 4)
			w.kubeletHas("a", "c")
			wait(5)
		},
		"a kubelet that never takes a list": func(w *watched) {
			rival := w.listen("any.sock", 1)
			wait(2)
			w.guard.devices.publish([]Device{{ID: "a", Healthy: true}})
			<-time.After(behindLimit / 2)
			w.wantNothing()
			<-time.After(behindLimit)
			w.wantRival("any.sock")
			rival.Close()
			wait(2)
			w.wantEnd(errRivalGone)
		},
		"forgotten amid a burst of lists": func(w *watched) {
			wait(2)
			w.guard.devices.publish([]Device{{ID: "a", Healthy: true}})
			w.kubeletHas()
			wait(2)
			w.wantEnd(errForgotten)
		},
		"forgotten": func(w *watched) {
			wait(2)
			w.kubeletHas()
			wait(2)
			w.wantEnd(errForgotten)
		},
		"another's devices, and it goes": func(w *watched) {
			rival := w.listen("any.sock", 1)
			w.kubeletHas("x", "a", "b")
			wait(2)
			w.wantRival("any.sock")
			w.kubeletHas("a", "b") // our list changed: it lives all the same
			wait(20)
			w.wantRival("any.sock")
			rival.Close()
			wait(2)
			w.wantEnd(errRivalGone)
		},
		"another's devices, and nobody": func(w *watched) {
			w.kubeletHas("x")
			wait(2)
			w.wantEnd(errRivalGone)
		},
		"it came and went between two looks": func(w *watched) {
			w.listen("unrelated.sock", -9)
			wait(2)
			rival := w.listen("any.sock", 1)
			w.guard.changed.Fire()
			synctest.Wait()
			rival.Close()
			w.kubeletHas("x")
			wait(2)
			w.wantEnd(errRivalGone)
		},
		"the same devices, by the name of its socket": func(w *watched) {
			rival := w.listen("amd.com_gpu", 1)
			w.guard.changed.Fire()
			wait(1)
			w.wantRival("amd.com_gpu")
			rival.(*net.UnixListener).SetUnlinkOnClose(false) // killed
			rival.Close()
			wait(2)
			w.wantEnd(errRivalGone)
		},
		"the clock was set back before it came": func(w *watched) {
			w.listen("amd.com_gpu", -3600)
			wait(2)
			w.wantRival("amd.com_gpu")
		},
		"another instance came": func(w *watched) {
			w.listen("amd.com_gpu-AAAAAAAAAAAA.sock", 1)
			wait(2)
			w.wantRival("amd.com_gpu-AAAAAAAAAAAA.sock")
		},
		"others that are for other resources": func(w *watched) {
			defer w.wantNothing()
			w.listen("amd.com_other-AAAAAAAAAAAA.sock", 1)
			w.listen("nvidia-gpu.sock", 1)
			wait(5)
		},
		"one that nobody listens on": func(w *watched) {
			defer w.wantNothing()
			rival := w.listen("amd.com_gpu", 1)
			rival.(*net.UnixListener).SetUnlinkOnClose(false)
			rival.Close()
			wait(5)
		},
	} {
		t.Run(name, func(t *testing.T) { guarded(t, story) })
	}
}

// TestGuardOfEarlierPlugin: a plugin that was there before ours has registered earlier, whatever the clock
// says. Its next socket is of a later registration.
func TestGuardOfEarlierPlugin(t *testing.T) {
	for _, after := range []int{-1, 3600} {
		guarded(t, func(w *watched) {
			wait(5)
			w.wantNothing()
			w.listeners[0].Close()
			w.listen("amd.com_gpu", after+1)
			wait(2)
			w.wantRival("amd.com_gpu")
		}, after)
	}
}

// TestPluginsThatStartAtOnce: after a start of the kubelet two plugins of a resource make their sockets at
// the same time, as in a rolling update. At most one of them takes the other for the later one.
func TestPluginsThatStartAtOnce(t *testing.T) {
	for range 200 {
		dir := t.TempDir()
		folder := filepath.Join(dir, "device-plugins")
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		var later [2]sockets
		var both sync.WaitGroup
		begin, opened := make(chan struct{}), sync.WaitGroup{}
		opened.Add(2)
		for i := range later {
			both.Go(func() {
				s := &Server{Options: Options{KubeletDir: dir}, resource: &watched{}, dir: folder}
				<-begin
				listener, earlier, err := s.open()
				opened.Done()
				if err != nil {
					t.Error(err)
					return
				}
				defer listener.Close()
				opened.Wait()
				others, err := otherSockets(dir, listener.Addr().String(), "amd.com/gpu")
				if err != nil {
					t.Error(err)
				}
				later[i] = others.named("amd.com/gpu", earlier)
			})
		}
		close(begin)
		if both.Wait(); len(later[0]) > 0 && len(later[1]) > 0 {
			t.Fatalf("each takes the other for later: %v", later)
		}
	}
}

// TestUnreadableFolderOfSockets: sockets that cannot be read are not missing.
func TestUnreadableFolderOfSockets(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "device-plugins"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if found, err := otherSockets(dir, "", "amd.com/gpu"); err == nil {
		t.Errorf("found %v in no folder", found)
	}
}

// guarded tells a story of a plugin whose devices a and b the kubelet has. Sockets of a plugin for the same
// resource that were there before have times so many seconds after ours.
func guarded(t *testing.T, story func(*watched), before ...int) {
	t.Helper()
	dir, err := os.MkdirTemp("", "g")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Mkdir(filepath.Join(dir, "device-plugins"), 0o700); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		w := &watched{t: t, dir: dir, has: []string{"b", "a"}}
		discard := slog.New(slog.DiscardHandler)
		server := &Server{
			resource: w, devices: &broadcast{},
			Options: Options{KubeletDir: dir, Allocatable: w.allocatable, Observer: w, Log: discard},
		}
		server.devices.publish([]Device{{ID: "a", Healthy: true}, {ID: "b", Healthy: true}, {ID: "c"}})
		const own = "amd.com_gpu-BBBBBBBBBBBB.sock"
		for _, after := range before {
			w.listeners = append(w.listeners, w.listen("amd.com_gpu", after))
		}
		earlier, err := otherSockets(dir, "", "amd.com/gpu")
		if err != nil {
			t.Error(err)
		}
		w.guard = server.newGuard(w.path(own), earlier)
		w.listen(own, 0)
		w.guard.start(t.Context())
		defer w.guard.stop()
		synctest.Wait()
		story(w)
		w.wantEnd(nil)
	})
}

// A kubelet takes one list after the other and writes its checkpoint in between, which takes longer than the
// time between two lists while VFs come. Wherever the looks fall, that is no other plugin.
func TestGuardOfSlowKubelet(t *testing.T) {
	for offset := range 20 {
		guarded(t, func(w *watched) {
			defer w.wantNothing()
			<-time.After(time.Minute + time.Duration(offset)*lookPause/20)
			lists := make(chan []string, 20) // what the stream holds
			taken := make(chan struct{})
			go func() { // the kubelet
				defer close(taken)
				for list := range lists {
					w.kubeletHas(list...)
					<-time.After(1500 * time.Millisecond)
				}
			}()
			list, ids := []Device{{ID: "a", Healthy: true}, {ID: "b", Healthy: true}}, []string{"a", "b"}
			for n := range 20 {
				id := fmt.Sprint("vf", n)
				list, ids = append(list, Device{ID: id, Healthy: true}), append(ids, id)
				w.guard.devices.publish(list)
				lists <- slices.Clone(ids)
				<-time.After(time.Second)
			}
			close(lists)
			<-taken
			wait(2)
		})
	}
}
