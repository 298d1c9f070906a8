// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/tandem-k8s/tandem/test/history"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/node"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/pair"
)

// fault is what can happen to a node. begin lets it come, at once or when the kubelet next calls a plugin,
// and returns its end.
type fault struct {
	name  string
	begin func(*chaos) (end func())
	fits  func(*chaos) bool // whether it can come; nil for always
	calm  bool              // every promise is valid
	gone  bool              // devices are gone meanwhile
}

var faults = []fault{
	{name: "daemon killed",
		begin: func(c *chaos) func() { c.kill(c.oneDaemon()); c.happened(); return nothing }},
	{name: "both daemons killed",
		begin: func(c *chaos) func() { c.kill(c.Pair.GPU, c.Pair.RDMA); c.happened(); return nothing }},
	{name: "daemon killed in an admission",
		begin: func(c *chaos) func() { c.inAdmission(func() { c.kill(c.oneDaemon()) }); return nothing }},
	{name: "both daemons killed in an admission",
		begin: func(c *chaos) func() { c.inAdmission(func() { c.kill(c.Pair.GPU, c.Pair.RDMA) }); return nothing }},
	{name: "daemon paused", begin: func(c *chaos) func() { c.happened(); return c.pause(c.oneDaemon()) }},
	{name: "daemon paused in an admission", begin: pausedInAdmission},
	{name: "kubelet restarted",
		begin: func(c *chaos) func() { c.restartKubelet(); c.happened(); return nothing }},
	{name: "kubelet killed in an admission", begin: kubeletKilledInAdmission},
	{name: "daemon replaced", begin: func(c *chaos) func() { return c.replace(false) }},
	{name: "daemon replaced with surge", begin: func(c *chaos) func() { return c.replace(true) }},
	{name: "daemon of another version",
		begin: func(c *chaos) func() { return c.exchangeVersion(foreignDaemons(c.t)) }},
	{name: "daemon of the version before", calm: true,
		begin: func(c *chaos) func() { return c.exchangeVersion(earlierDaemons(c.t)) }},
	{name: "look at PodResources while an Allocate is in flight", begin: lookInFlight, fits: sighted},
	{name: "pods created again under their names", begin: renew, calm: true},
	{name: "jobs created again on each other's NUMA node", begin: exchange, calm: true,
		fits: isWhole},
	{name: "PodResources List fails", begin: fail(node.List), fits: sighted},
	{name: "PodResources List is slow", begin: slow(node.List), fits: sighted},
	{name: "PodResources List fails after the kubelet has lost sight of a device", begin: failBlind,
		fits: sighted},
	{name: "Pods API fails", begin: fail(node.ListPods), fits: of("pods-api")},
	{name: "Pods API is slow", begin: slow(node.ListPods), fits: of("pods-api")},
	{name: "kubelet's HTTPS server fails", begin: fail(node.GetPods), fits: of("kubelet")},
	{name: "kubelet's HTTPS server is slow", begin: slow(node.GetPods), fits: of("kubelet")},
	{name: "fewer VFs for each PF", begin: fewerVFs, fits: severalVFs, gone: true},
	{name: "fewer VFs for each PF, and all start anew", begin: restartsFewer, fits: severalVFs, gone: true},
	{name: "GPU driver unloaded and loaded", begin: unload, gone: true},
	{name: "run folder full", begin: func(c *chaos) func() { return c.withOneKilled(c.fillRunFolder()) },
		fits: canMount},
	{name: "run folder read-only",
		begin: func(c *chaos) func() { return c.withOneKilled(c.writeProtectRunFolder()) }, fits: canMount},
	{name: "run folder given to another user",
		begin: func(c *chaos) func() { return c.withOneKilled(c.giveAwayRunFolder()) }, fits: canMount},
	{name: "run folder emptied",
		begin: func(c *chaos) func() { c.emptyRunFolder(); return c.withRestart(nothing) }},
	{name: "files in run folder corrupted",
		begin: func(c *chaos) func() { c.corruptRunFolder(); return c.withRestart(nothing) }},
}

func nothing() {}

func (c *chaos) oneDaemon() *pair.Daemon {
	return []*pair.Daemon{c.Pair.GPU, c.Pair.RDMA}[c.random.IntN(2)]
}

func (c *chaos) kill(daemons ...*pair.Daemon) {
	c.dead = true
	for _, daemon := range daemons {
		c.did("kill %s", daemon.Name())
		c.history.Note(history.Event{Kind: history.Killed, Text: daemon.Name()})
		c.must(daemon.Kill())
		c.killed[daemon] = true
		delete(c.started, daemon)
	}
}

func (c *chaos) start(daemon *pair.Daemon) {
	delete(c.killed, daemon)
	c.started[daemon] = c.Pair.Log.Len()
	c.history.Note(history.Event{Kind: history.Started, Text: daemon.Name()})
	c.must(daemon.Start())
}

// inAdmission does something before or after one of the next calls of the kubelet to a plugin.
func (c *chaos) inAdmission(do func()) {
	wait := c.random.IntN(8) // up to four calls in the admission of one container
	c.hook = func(call node.Call, after bool) {
		if wait--; wait == -1 {
			c.did("%s on %s, answered %t", call.Method, call.Socket, after)
			do()
			c.happened()
		}
	}
}

// pause stops a daemon for less than the kubelet's patience, which has no end.
func (c *chaos) pause(daemon *pair.Daemon) (end func()) {
	most := 400 * time.Millisecond
	c.did("pause %s", daemon.Name())
	c.must(daemon.Pause())
	done := make(chan error, 1)
	time.AfterFunc(time.Duration(c.random.Int64N(int64(most))), func() { done <- daemon.Resume() })
	return func() { c.must(<-done) }
}

func pausedInAdmission(c *chaos) func() {
	end := nothing
	c.inAdmission(func() { end = c.pause(c.oneDaemon()) })
	return func() { end() }
}

// restartKubelet starts the kubelet again. The pods of before have to pass its admission once more.
func (c *chaos) restartKubelet() {
	c.dead = true
	c.did("restart kubelet")
	start := c.history.Call(history.Event{Kind: history.Started, Text: history.Kubelet})
	refused, err := c.Node.Restart()
	c.history.Return(start, nil)
	c.must(err)
	c.stopped = false
	for _, pod := range refused {
		c.counts["refused by the restarted kubelet: an init container had devices"]++
		c.load.depart(slices.Index(c.pods, pod))
	}
}

func kubeletKilledInAdmission(c *chaos) func() {
	c.inAdmission(func() {
		c.stopped = true
		c.did("stop kubelet")
		c.history.Note(history.Event{Kind: history.Killed, Text: history.Kubelet})
		c.must(c.Node.Stop())
	})
	return c.restartKubelet
}

// replace is a rolling update of one daemon, while pods arrive. With surge the new one comes first.
func (c *chaos) replace(surge bool) (end func()) {
	c.dead = true // no pod can have its devices for a moment
	which := []**pair.Daemon{&c.Pair.GPU, &c.Pair.RDMA}[c.random.IntN(2)]
	before, after := *which, (*which).Another()
	c.happened() // the end waits for it
	position := c.Pair.Log.Len()
	done := make(chan error, 1)
	go func() {
		if !surge {
			if err := before.Stop(); err != nil {
				done <- err
				return
			}
			done <- after.Start()
			return
		}
		if err := after.Start(); err != nil {
			done <- err
			return
		}
		if _, err := c.Pair.Log.Wait(deadline(c.t), position, registeredOnce); err != nil {
			done <- err
			return
		}
		done <- before.Stop()
	}()
	return func() {
		c.must(<-done)
		*which = after
		if surge && node.Version == "1.36" { // its kubelet disconnects the new one with the old one
			_, err := c.Pair.Log.Wait(deadline(c.t), position, registeredTwice)
			c.must(err)
		}
	}
}

func registeredOnce(lines []pair.Line) bool  { return registrations(lines) >= 1 }
func registeredTwice(lines []pair.Line) bool { return registrations(lines) >= 2 }

// exchangeVersion replaces one daemon by one of another version, until the end. Either of the two can be the
// one that serves. With a version that the other daemon cannot work with, each places devices alone.
func (c *chaos) exchangeVersion(bin string) (end func()) {
	which, other := &c.Pair.GPU, &c.Pair.RDMA
	if c.random.IntN(2) == 0 {
		which, other = other, which
	}
	own := *which
	*which = own.From(bin)
	c.restart(own, *which)
	if c.random.IntN(2) == 0 {
		c.restart(*other, *other)
	}
	c.must(c.WaitAllocatable(deadline(c.t)))
	c.happened()
	return func() {
		foreign := *which
		*which = own
		c.restart(foreign, own)
	}
}

// restart stops a daemon and starts one in its place.
func (c *chaos) restart(before, after *pair.Daemon) {
	c.did("restart %s", before.Name())
	c.must(before.Stop())
	position := c.Pair.Log.Len()
	c.must(after.Start())
	_, err := c.Pair.Log.Wait(deadline(c.t), position, registeredOnce)
	c.must(err)
}

// sighted is for faults that daemons without PodResources do not see: what the kubelet offers is all that
// they know.
func sighted(c *chaos) bool { return !c.blind }

// lookInFlight makes the kubelet lose sight of a device: see doubled_test.go. It finds it again when the next
// pod ends.
func lookInFlight(c *chaos) func() {
	lister := podResourcesClient(c.t, c.KubeletDir())
	var gone []*v1.Pod
	c.hook = func(call node.Call, after bool) {
		if after || call.Method != node.Allocate || len(c.pods) == 0 || c.random.IntN(2) == 0 {
			return
		}
		ended := c.random.IntN(len(c.pods))
		c.did("look in flight, %s has ended", c.pods[ended].Name)
		c.Node.Terminate(c.pods[ended])
		c.freed = c.admissions
		if _, err := lister.List(deadline(c.t), &podresources.ListPodResourcesRequest{}); err != nil {
			c.did("%v", err) // the limiter
		}
		c.happened()
		gone = append(gone, c.pods[ended])
		c.Release(c.pods[ended])
		c.pods = slices.Delete(c.pods, ended, ended+1)
	}
	return func() {
		for _, pod := range gone {
			c.must(c.Remove(pod))
		}
		if len(c.pods) > 0 {
			c.load.depart(c.random.IntN(len(c.pods)))
		}
	}
}

// withRestart also kills, in every other case, one of the daemons, and starts it again at once.
func (c *chaos) withRestart(end func()) func() {
	if c.random.IntN(2) == 0 {
		return end
	}
	daemon := c.oneDaemon()
	c.kill(daemon)
	c.start(daemon)
	return end
}

// withOneKilled also kills, in every other case, one of the daemons, and the other one has to take over. The
// first comes back when the fault is over: on a run folder that cannot be written a daemon says so and ends
// at once.
func (c *chaos) withOneKilled(end func()) func() {
	if c.random.IntN(2) == 0 {
		c.kill(c.oneDaemon())
	}
	return end
}

// mountable is whether this process may mount.
var mountable atomic.Bool

// canMount is for faults that take root: without it their campaign does not have them.
func canMount(*chaos) bool { return mountable.Load() }

// smallFolder is a folder of its own file system with little room where that can be made, which takes root.
func smallFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(scratch, "run-")
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64m"); err != nil {
		t.Logf("run folder is never full: %v", err)
		return dir
	}
	// with daemons that have mounts of their own
	if err := syscall.Mount("", dir, "", syscall.MS_SHARED, ""); err != nil {
		t.Fatalf("share %s: %v", dir, err)
	}
	mountable.Store(true)
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fillRunFolder leaves no room in it, which takes a file system of its own.
func (c *chaos) fillRunFolder() (end func()) {
	name := filepath.Join(c.RunDir(), "ballast")
	file, err := os.Create(name)
	c.must(err)
	for err == nil {
		_, err = file.Write(make([]byte, 4096))
	}
	c.did("fill run folder: %v", err)
	c.happened()
	file.Close()
	return func() { c.must(os.Remove(name)) }
}

// writeProtectRunFolder makes it read-only for everyone who opens something in it from now on. That takes
// root. It is a mount that is read-only from the start: daemons with mounts of their own get every mount, but
// not what becomes of it.
func (c *chaos) writeProtectRunFolder() (end func()) {
	dir, protected := c.RunDir(), c.t.TempDir()
	c.must(syscall.Mount(dir, protected, "", syscall.MS_BIND, ""))
	c.must(syscall.Mount("", protected, "", syscall.MS_PRIVATE, ""))
	if err := syscall.Mount("", protected, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY,
		""); err != nil {
		c.must(fmt.Errorf("write-protect %s: %w", dir, err))
	}
	c.must(syscall.Mount(protected, dir, "", syscall.MS_BIND, ""))
	c.must(syscall.Unmount(protected, syscall.MNT_DETACH))
	c.did("write-protect run folder")
	c.happened()
	return func() { c.must(syscall.Unmount(dir, syscall.MNT_DETACH)) }
}

// giveAwayRunFolder makes it another user's: whoever starts to serve refuses it. That takes root.
func (c *chaos) giveAwayRunFolder() (end func()) {
	const nobody = 65534
	c.must(os.Chown(c.RunDir(), nobody, nobody))
	c.did("give run folder to user %d", nobody)
	c.happened()
	return func() { c.must(os.Chown(c.RunDir(), os.Geteuid(), os.Getegid())) }
}

// emptyRunFolder removes all that is in it: lock, socket, checkpoint and what containers are told.
func (c *chaos) emptyRunFolder() {
	c.eachInRunFolder(func(name string) {
		c.did("remove %s", name)
		c.happened()
		c.must(os.RemoveAll(name))
	})
}

// corruptRunFolder overwrites part of every file in it that says something.
func (c *chaos) corruptRunFolder() {
	c.corrupted = true
	c.eachInRunFolder(func(name string) {
		info, err := os.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			return // a daemon has put a file in place of another
		}
		c.must(err)
		if !info.Mode().IsRegular() || info.Size() == 0 {
			return
		}
		file, err := os.OpenFile(name, os.O_WRONLY, 0)
		if errors.Is(err, fs.ErrNotExist) {
			return
		}
		c.must(err)
		defer file.Close()
		from := c.random.Int64N(info.Size())
		_, err = file.WriteAt([]byte("\x00corrupt\xff"), from)
		c.must(err)
		if c.random.IntN(2) == 0 {
			c.must(file.Truncate(from))
		}
		c.did("corrupt %s from %d", name, from)
		c.happened()
	})
}

func (c *chaos) eachInRunFolder(do func(name string)) {
	names, err := filepath.Glob(filepath.Join(c.RunDir(), "*"))
	c.must(err)
	for _, name := range names {
		do(name)
	}
}
