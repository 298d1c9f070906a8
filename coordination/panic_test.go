package coordination

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// A mistake in what looks at files and sources of intent costs what they would have told: the coordinator answers without it.
func TestPanicCostsOneSource(t *testing.T) {
	server, members, log := serverAndClient(t)
	c := server.serving.Load().coordinator
	recorded := c.recorded
	for _, mistake := range []func(){
		func() { c.pods = func(context.Context) (intent.Answer, bool) { panic("a mistake") } },
		func() {
			c.pods = nil
			c.recorded = hurried(c.log, readTimeout, func() (kubelet.Checkpoint, error) { panic("a mistake") })
		},
		func() { c.recorded = recorded },
	} {
		c.locked(mistake)
		for name, member := range members {
			if got := member.Prefer(t.Context(), offered[name], nil, 1); len(got) != 1 {
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
	c := server.serving.Load().coordinator
	refresh := c.refresh
	var mistakes atomic.Int32
	c.locked(func() {
		c.refresh = func(a Announcement) error {
			if mistakes.Add(1) == 1 {
				panic("a mistake")
			}
			return refresh(a)
		}
	})
	members[vfs].Publish(Announcement{})
	await(t, server.config.RunDir, connected(gpus))
	await(t, server.config.RunDir, connected(gpus, vfs))
	if n := strings.Count(log.String(), "a mistake"); n != 1 {
		t.Errorf("%d panics were logged", n)
	}
}

// A server whose work beside the answers panics gives the service up, and it goes on from the checkpoint.
func TestPanicCostsOneServer(t *testing.T) {
	server, members, log := serverAndClient(t)
	before := server.serving.Load()
	if _, err := members[vfs].Allocated(t.Context(), []string{"vf0"}); err != nil {
		t.Fatal(err)
	}
	before.coordinator.locked(func() { before.coordinator.current().ledger.resources["no such"] = nil })
	before.coordinator.touched()
	await(t, server.config.RunDir, connected(gpus, vfs))
	for server.serving.Load() == before {
		await(t, server.config.RunDir, connected(gpus, vfs))
	}
	if text := log.String(); !strings.Contains(text, "coordination panicked") {
		t.Errorf("log %s", text)
	}
}
