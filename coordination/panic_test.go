// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/system"
)

// A mistake in what looks at files and sources of intent costs what they would have told: the coordinator
// answers without it.
func TestPanicCostsOneSource(t *testing.T) {
	server, members, log := serverAndClient(t)
	c := server.election.serving.Load().coordinator
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
	c := server.election.serving.Load().coordinator
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
	if _, _, err := vf.Allocated(t.Context(), vf.StartAllocate([]string{"vf0"})); err != nil {
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
