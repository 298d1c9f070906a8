// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/system"
)

func TestRole(t *testing.T) {
	dir := shortDir(t) + "/run"
	first, _, stopFirst := join(t, Config{RunDir: dir}, gpus, oneGPU, gpus)
	second, _, _ := join(t, Config{RunDir: dir}, vfs, oneVF, gpus, vfs)
	if first.Role() != Serves || second.Role() != Joined || len(first.Resources()) != 2 ||
		second.Resources() != nil {
		t.Errorf("%s with %v and %s with %v", first.Role(), first.Resources(), second.Role(), second.Resources())
	}
	for _, n := range []*Node{first, second} {
		if err := n.Alive(t.Context()); err != nil {
			t.Error(err)
		}
	}
	letGo := hang(first)
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := first.Alive(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a coordinator that hangs: %v", err)
	}
	letGo()
	long := time.Now().Add(-stuck)
	second.election.beat.Store(&long)
	if err := second.Alive(t.Context()); err == nil {
		t.Error("an election that hangs is alive")
	}
	stopFirst()
	await(t, dir, connected(vfs))
	if second.Role() != Serves || first.Role() != Apart {
		t.Errorf("%s and %s after the first one ended", first.Role(), second.Role())
	}
}

// An Allocate that is answered while a server drains, whichever plugin asks, is known to the next
// one.
func TestNextServerKnowsWhatTheDrainAnswered(t *testing.T) {
	t.Parallel()
	for _, name := range []string{gpus, vfs} {
		answered := false
		for range 20 { // a drain does not wait for ever: on a busy machine it can end before the answer
			if answered = drains(t, name); answered {
				break
			}
		}
		if !answered {
			t.Errorf("%s: no drain waits for an answer", name)
		}
	}
}

// drains stops a server while it answers an Allocate of a resource, and reports whether that was answered.
func drains(t *testing.T, name string) bool {
	dir := filepath.Join(shortDir(t), "run")
	server, gpu, stop := join(t, Config{RunDir: dir}, gpus, oneGPU, gpus)
	_, vf, stopClient := join(t, Config{RunDir: dir}, vfs, oneVF, gpus, vfs)
	defer stopClient()
	members := map[string]*Member{gpus: gpu, vfs: vf}
	c := coordinatorOf(server)
	own, began, goOn := c.Kubelet, make(chan struct{}), make(chan struct{})
	c.Kubelet = checkpoints{own, func() (kubelet.Checkpoint, error) {
		close(began)
		<-goOn
		return own.Checkpoint()
	}}
	id := map[string]string{gpus: "gpu0", vfs: "vf0"}[name]
	answers := make(chan error, 1)
	go func() {
		_, err := members[name].report(t.Context(), members[name].StartAllocate(t.Context(), []string{id}))
		answers <- err
	}()
	<-began
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		stop()
	}()
	for server.election.serving.Load() != nil { // until it drains, of which nobody is told
		runtime.Gosched()
	}
	close(goOn)
	err := <-answers
	<-stopped
	if err != nil {
		return false
	}
	if got := held(await(t, dir, connected(vfs)).GetResources()); !slices.Contains(got, id) {
		t.Errorf("the next server has %s as given to nobody: %v", id, got)
	}
	return true
}

// The next server takes the lock after the last write of the ending server, however late, else it would go on
// from an older file, and the late write would replace the newer file.
func TestLateWriteHoldsTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := shortDir(t)
		release, err := tryLock(dir)
		if err != nil {
			t.Fatal(err)
		}
		var saving sync.WaitGroup
		saving.Go(func() { <-time.After(2 * writeTimeout) })
		began := time.Now()
		if awaitEnd(&saving, writeTimeout, release); time.Since(began) != writeTimeout {
			t.Errorf("waited for %s, want %s", time.Since(began), writeTimeout)
		}
		if _, err := tryLock(dir); !errors.Is(err, errLocked) {
			t.Errorf("the lock during the write: %v", err)
		}
		<-time.After(2 * writeTimeout)
		synctest.Wait()
		release, err = tryLock(dir)
		if err != nil {
			t.Fatalf("the lock after the write: %v", err)
		}
		release()
	})
}

// A mistake in what looks at files and sources of requests costs what they would have told: the coordinator
// answers without it.
func TestPanicCostsOneSource(t *testing.T) {
	server, members, log := serverAndClient(t)
	c := coordinatorOf(server)
	own := c.Kubelet
	for _, mistake := range []func(){
		func() { c.Pods = requests(func() (intent.Answer, error) { panic("a mistake") }) },
		func() {
			c.Pods = requests(func() (none intent.Answer, err error) { return none, kubelet.ErrNotRead })
			c.Kubelet = checkpoints{own, system.BoundRead(c.Log, fileLimit, func() (kubelet.Checkpoint, error) {
				panic("a mistake")
			})}
		},
		func() { c.Kubelet = own },
	} {
		mistake()
		for name, member := range members {
			if got := choose(t, member, offered[name], nil, 1); len(got) != 1 {
				t.Errorf("%s: %v", name, got)
			}
		}
	}
	if n := strings.Count(log.String(), "a mistake"); n != 4 {
		t.Errorf("%d panics were logged", n)
	}
	togetherAtTimes(t, log)
}

// An announcement that makes the server panic costs its plugin the server for a while.
func TestPanicCostsOneAnnouncement(t *testing.T) {
	t.Parallel()
	server, members, log := serverAndClient(t)
	c := coordinatorOf(server)
	own := c.Machine
	var mistakes atomic.Int32
	c.Machine = refreshed{own, func(a device.Announcement) error {
		if mistakes.Add(1) == 1 {
			panic("a mistake")
		}
		return own.Refresh(a)
	}}
	members[vfs].Publish(device.Announcement{})
	await(t, server.config.RunDir, connected(gpus))
	await(t, server.config.RunDir, connected(gpus, vfs))
	if n := strings.Count(log.String(), "a mistake"); n != 1 {
		t.Errorf("%d panics were logged", n)
	}
}

// mistaken panics when something is logged.
type mistaken struct {
	slog.Handler
	words string
}

func (m mistaken) Handle(ctx context.Context, r slog.Record) error {
	if strings.Contains(r.Message, m.words) {
		panic("a mistake")
	}
	return m.Handler.Handle(ctx, r)
}

// limitedFolder is a folder of a disk that can be full.
type limitedFolder struct {
	system.Folder
	full *atomic.Bool
}

func (f limitedFolder) Create(name string) (system.File, error) {
	if f.full.Load() {
		return nil, syscall.ENOSPC
	}
	return f.Folder.Create(name)
}

// A server whose work beside the answers panics gives the service up, and the next one goes on from the
// checkpoint.
func TestPanicCostsOneServer(t *testing.T) {
	dir := filepath.Join(shortDir(t), "run")
	log, logger := newLog()
	var full atomic.Bool
	server, _ := startWith(t, Config{
		RunDir: dir, Log: slog.New(mistaken{logger.Handler(), "saved state not written"}),
		Disk: system.Disk{Open: func(dir string) (system.Folder, error) {
			folder, err := system.OpenFolder(dir)
			return limitedFolder{folder, &full}, err
		}},
	})
	gpu := server.Member(gpus, device.GPU)
	gpu.Publish(threeGPUs)
	await(t, dir, connected(gpus))
	_, vf, _ := join(t, Config{RunDir: dir, Log: logger}, vfs, oneVF, gpus, vfs)
	if _, _, err := vf.Allocated(t.Context(), vf.StartAllocate(t.Context(), []string{"vf0"})); err != nil {
		t.Fatal(err)
	}
	before := server.election.serving.Load()
	full.Store(true)
	before.coordinator.Leave("no such") // something to write
	await(t, dir, connected(gpus, vfs))
	for server.election.serving.Load() == before {
		await(t, dir, connected(gpus, vfs))
	}
	if text := log.String(); !strings.Contains(text, "panicked") {
		t.Errorf("log %s", text)
	}
}
