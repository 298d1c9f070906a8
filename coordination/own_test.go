// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/pairs"
	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/topology"
)

// serverAndClient are two plugins: one that serves itself, and one that asks it over the socket.
func serverAndClient(t *testing.T) (server *Node, members map[string]*Member, log *lockedBuffer) {
	t.Helper()
	dir := filepath.Join(shortDir(t), "run")
	log, logger := newLog()
	server, gpu, _ := join(t, Config{RunDir: dir, Log: logger}, gpus, threeGPUs, gpus)
	_, vf, _ := join(t, Config{RunDir: dir, Log: logger}, vfs, device.Announcement{Devices: []device.Device{
		{ID: "vf0", Address: topology.Address{Bus: 2}, Healthy: true},
		{ID: "vf1", Address: topology.Address{Bus: 3}, Healthy: true},
	}}, gpus, vfs)
	return server, map[string]*Member{gpus: gpu, vfs: vf}, log
}

// coordinatorOf returns the coordinator of a plugin that serves.
func coordinatorOf(n *Node) *admission.Coordinator { return n.election.serving.Load().coordinator }

var offered = map[string][]string{gpus: {"a", "b", "gpu0"}, vfs: {"vf0", "vf1"}}

// A mistake that makes the coordinator panic costs one answer, which the plugin gives itself; the daemon and
// the coordinator live on.
func TestPanicCostsOneAnswer(t *testing.T) {
	server, members, log := serverAndClient(t)
	c := coordinatorOf(server)
	own := c.Kubelet
	for name, member := range members {
		c.Kubelet = lister{own, func() (kubelet.View, error) { panic("a mistake") }}
		if got := choose(t, member, offered[name], nil, 1); len(got) != 1 {
			t.Errorf("%s: %v", name, got)
		}
		c.Kubelet = own
		if got := choose(t, member, offered[name], nil, 1); len(got) != 1 {
			t.Errorf("%s: %v", name, got)
		}
	}
	text := log.String()
	if n := strings.Count(text, "a mistake"); n != 2 {
		t.Errorf("%d panics were logged", n)
	}
	if together, alone := strings.Count(text, "source=coordinator"),
		strings.Count(text, "source=local"); together < 1 || alone < 2 {
		t.Errorf("%d answers of the coordinator, %d without it", together, alone)
	}
}

// breakStream ends the stream of a plugin by a mistake of the server.
func breakStream(t *testing.T, server *Node, vf *Member, log *lockedBuffer) {
	t.Helper()
	c := coordinatorOf(server)
	own := c.Machine
	c.Machine = refreshed{own, func(device.Announcement) error { panic("a mistake") }}
	vf.Publish(device.Announcement{
		Devices: []device.Device{{ID: "vf0", Address: topology.Address{Bus: 2}, Healthy: true}},
	})
	log.await(t, "lost the coordination server")
	c.Machine = own
}

// hang has the coordinator of a node hang in a decision until it is let go.
func hang(n *Node) (letGo func()) {
	c := coordinatorOf(n)
	hangs, goOn, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	own := c.Machine
	c.Machine = renewed{own, func() *topology.Tree {
		close(hangs)
		<-goOn
		return own.Newest()
	}}
	go func() {
		defer close(done)
		_ = c.Announce(gpus, device.GPU, oneGPU)
	}()
	<-hangs
	return func() {
		close(goOn)
		<-done
		c.Machine = own
	}
}

// A plugin asks the server of its own process directly, and any other over the socket: the server refuses
// what is too much, the question ends at the deadline, and no list is shared.
func TestOwnServer(t *testing.T) {
	for name, direct := range map[string]bool{"directly": true, "over the socket": false} {
		t.Run(name, func(t *testing.T) {
			server, _, _ := serverAndClient(t)
			m := server.membership
			if !direct {
				m.own = &atomic.Pointer[nodeServer]{}
			}
			prefer := func(ctx context.Context, q *api.PreferRequest) (*api.PreferResponse, error) {
				return ask(ctx, m, q, (*nodeServer).Prefer, api.CoordinationClient.Prefer)
			}
			pair := &api.PairRequest{}
			if _, err := ask(t.Context(), m, pair, (*nodeServer).Pair, api.CoordinationClient.Pair); err != nil {
				t.Error(err)
			}
			many := &api.AllocatedRequest{Devices: make([]string, device.MaxDevices+1)}
			if _, err := ask(t.Context(), m, many, (*nodeServer).Allocated,
				api.CoordinationClient.Allocated); status.Code(err) != codes.InvalidArgument {
				t.Errorf("too many devices: %v", err)
			}
			question := &api.PreferRequest{Resource: gpus, Available: slices.Clone(offered[gpus]), Size: 2}
			answer, err := prefer(t.Context(), question)
			if err != nil {
				t.Fatal(err)
			}
			first := slices.Clone(answer.GetDevices())
			clear(question.Available)
			clear(answer.Devices)
			told, err := server.election.serving.Load().Status(t.Context(), nil)
			if plan := told.GetPlan().GetDevices()[gpus].GetIds(); err != nil || !slices.Equal(plan, first) {
				t.Errorf("%v are planned after %v were given, %v", plan, first, err)
			}
			letGo := hang(server)
			short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			question.Available = offered[gpus]
			_, err = prefer(short, question)
			letGo()
			if status.Code(err) != codes.DeadlineExceeded && !errors.Is(err, system.ErrLate) {
				t.Errorf("a coordinator that hangs: %v", err)
			}
		})
	}
}

// A call of a server that has stopped goes to the next one, which answers over the socket.
func TestStoppedServerDoesNotAnswer(t *testing.T) {
	server, members, _ := serverAndClient(t)
	own := server.election.serving.Load()
	stopped := &nodeServer{coordinator: own.coordinator, calls: make(system.Turn, 1), log: own.log}
	if _, err := stopped.Prefer(t.Context(), &api.PreferRequest{Resource: "none"}); status.Code(err) !=
		codes.FailedPrecondition {
		t.Errorf("an unknown resource: %v", err)
	}
	closed, err := admission.New(*own.coordinator.Config)
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	stopped.coordinator = closed
	failed := &api.ReturnedRequest{Resource: vfs, Devices: []string{"vf0"}, Failed: true}
	if _, err := stopped.Returned(t.Context(), failed); status.Code(err) != codes.Unavailable {
		t.Errorf("the report of a failure is lost: %v", err)
	}
	server.membership.own = &atomic.Pointer[nodeServer]{}
	server.membership.own.Store(stopped)
	a := members[gpus].StartAllocate(t.Context(), []string{"gpu0"})
	if _, err := members[gpus].report(t.Context(), a); err != nil {
		t.Errorf("the call is lost: %v", err)
	}
	member := server.Member(vfs, device.VF)
	if _, err := member.report(t.Context(), member.StartAllocate(t.Context(), []string{"vf0"})); err != nil {
		t.Errorf("the call is lost: %v", err)
	}
	served, _ := member.Pair(t.Context(), []pairs.VF{{ID: "vf0", Address: topology.Address{Bus: 2}}}, "")
	if len(served) == 0 {
		t.Error("the pairs are lost")
	}
}

// A server that stops leaves an open call its time, whether the call is of its own process or not.
func TestStoppingServerAnswersOpenCalls(t *testing.T) {
	for name, overSocket := range map[string]bool{"directly": false, "over the socket": true} {
		t.Run(name, func(t *testing.T) {
			_, log := newLog()
			dir := filepath.Join(shortDir(t), "run")
			node, member, stop := join(t, Config{RunDir: dir, Log: log, OverSocket: overSocket}, gpus, threeGPUs, gpus)
			c := coordinatorOf(node)
			waits, goOn := make(chan struct{}), make(chan struct{})
			c.Kubelet = lister{c.Kubelet, func() (kubelet.View, error) {
				close(waits)
				<-goOn
				return kubelet.View{}, kubelet.ErrNotRead
			}}
			ctx, cancel := context.WithTimeout(t.Context(), 10*stopTimeout)
			defer cancel()
			var call sync.WaitGroup
			call.Go(func() {
				_, _ = member.Prefer(ctx, &api.PreferRequest{
					Resource: gpus, Available: offered[gpus], Size: 1,
				})
			})
			<-waits
			began := time.Now()
			time.AfterFunc(2*stopTimeout, func() { close(goOn) })
			stop()
			if took := time.Since(began); took < stopTimeout {
				t.Errorf("the server ends after %s, before its open call", took)
			}
			call.Wait()
		})
	}
}
