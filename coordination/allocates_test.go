// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
)

// listsNever asks about GPUs for a while, and fails if the coordinator calls List meanwhile.
func listsNever(t *testing.T, m *Member, looks *atomic.Int32) {
	t.Helper()
	for start := time.Now(); time.Since(start) < 200*time.Millisecond; <-time.After(5 * time.Millisecond) {
		if choose(t, m, []string{"gpu0"}, nil, 1); looks.Load() > 0 {
			t.Fatalf("PodResources is listed while the Allocate of a VF is open, after %s", time.Since(start))
		}
	}
}

// listsSoon asks about GPUs until the coordinator calls List.
func listsSoon(t *testing.T, m *Member, looks *atomic.Int32) {
	t.Helper()
	for start := time.Now(); looks.Load() == 0; choose(t, m, []string{"gpu0"}, nil, 1) {
		if time.Since(start) > time.Second {
			t.Fatal("the server takes the Allocate for open")
		}
	}
}

// A server that goes on after a plugin has waited in vain learns that the Allocate is over. An Allocate
// without devices, which the coordinator does not answer, is an Allocate like any other.
func TestEndWithoutAnAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		ids       []string
		answered  bool // the Allocate, and not its end
		announces bool // the plugin, meanwhile
	}{
		"no answer":              {ids: []string{"vf0"}},
		"no answer to the end":   {ids: []string{"vf0"}, answered: true},
		"beside an announcement": {ids: []string{"vf0"}, announces: true},
		"without devices":        {},
	} {
		t.Run(name, func(t *testing.T) {
			server, members, _ := serverAndClient(t)
			if c.announces {
				defer publishSlowly(coordinatorOf(server), members[vfs])()
			}
			looks := countLooks(coordinatorOf(server))
			var a *Allocate
			if c.answered {
				a = allocate(t, members[vfs], c.ids...)
			}
			letGo := hang(server)
			if !c.answered {
				a = allocate(t, members[vfs], c.ids...)
			}
			members[vfs].Returned(t.Context(), a, false)
			letGo()
			listsSoon(t, members[gpus], looks)
			if members[vfs].client.foreign.Load() {
				t.Error("the plugin takes the server for one of another protocol")
			}
		})
	}
}

// The late end of an Allocate is not that of the next one of the same devices.
func TestEndOfAnEarlierAllocate(t *testing.T) {
	server, members, _ := serverAndClient(t)
	c := coordinatorOf(server)
	release := publishSlowly(c, members[vfs])
	letGo := hang(server)
	a := allocate(t, members[vfs], "vf0")       // of a pod
	members[vfs].Returned(t.Context(), a, true) // that is rejected
	letGo()
	looks := countLooks(c)
	next := allocate(t, members[vfs], "vf0")
	listsNever(t, members[gpus], looks)
	release()
	listsNever(t, members[gpus], looks)
	members[vfs].Returned(t.Context(), next, false)
	listsSoon(t, members[gpus], looks)
}

// A plugin whose stream broke by a panic or a rejection pauses for electionPause, longer than maxUntold, and
// lives: an Allocate that takes as long (a run directory that hangs) is still open.
func TestBrokenStreamEndsNoAllocate(t *testing.T) {
	for name, lose := range map[string]func(*testing.T, *Node, *Member, *lockedBuffer){
		"a panic of the server": breakStream,
		"a rejected announcement of another resource of the plugin": func(
			t *testing.T, _ *Node, m *Member, log *lockedBuffer,
		) {
			for i := range device.MaxResources { // one too many
				m.announced.siblings.add(fmt.Sprintf("nvidia.com/other%d", i), device.VF).publish(oneVF)
			}
			log.await(t, "the server rejected the announcement")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, members, log := serverAndClient(t)
			looks := countLooks(coordinatorOf(server))
			allocate(t, members[vfs], "vf0")
			lose(t, server, members[vfs], log)
			listsNever(t, members[gpus], looks)
			<-time.After(1100 * time.Millisecond)
			listsNever(t, members[gpus], looks)
		})
	}
}

// The server that takes over knows of an open Allocate.
func TestTakeoverDuringAnAllocate(t *testing.T) {
	dir := filepath.Join(shortDir(t), "run")
	_, _, stop := join(t, Config{RunDir: dir}, gpus, oneGPU, gpus)
	next, vf, _ := join(t, Config{RunDir: dir}, vfs, oneVF, gpus, vfs)
	a := allocate(t, vf, "vf0")
	stop()
	for next.election.serving.Load() == nil {
		<-time.After(time.Millisecond)
	}
	_, gpu, _ := join(t, Config{RunDir: dir}, gpus, oneGPU, gpus, vfs) // the next process of the plugin
	looks := countLooks(coordinatorOf(next))
	listsNever(t, gpu, looks)
	vf.Returned(t.Context(), a, false)
	listsSoon(t, gpu, looks)
}

// A plugin of the version before tells the end of each Allocate over Join, in a message that announces
// nothing and gets no response. A server that ends the membership for it is taken for foreign.
func TestEndOfAnOlderPlugin(t *testing.T) {
	_, client := startAndDial(t)
	m := oneVF.Encode(vfs, device.VF)
	m.Version = &api.Version{Major: protocol.major, Minor: 4, Build: "before"}
	stream := joinAs(t, client, m)
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	end := &api.Announcement{Resource: vfs}
	end.ProtoReflect().SetUnknown([]byte{6<<3 | 2, 3, 'v', 'f', '0'})
	if err := stream.Send(end); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := stream.Recv()
		ended <- err
	}()
	select {
	case err := <-ended:
		t.Errorf("the server answers the end of an Allocate: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
}

// brokenAllocates is a server in which the stream of open Allocates ends by a mistake, while Join goes on.
type brokenAllocates struct {
	otherServer
	opened chan struct{}
}

func (o *brokenAllocates) OpenAllocates(
	stream grpc.ClientStreamingServer[api.OpenAllocatesRequest, api.OpenAllocatesResponse],
) error {
	if _, err := stream.Recv(); err != nil {
		return err
	}
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	o.opened <- struct{}{}
	return status.Error(codes.Aborted, "it ends alone")
}

// The end of the stream of open Allocates is the end of the membership: the server counts the plugin's open
// Allocates as over after a second, so that the plugin has to connect again at once, not with its next
// Allocate.
func TestStreamOfAllocatesEndsAlone(t *testing.T) {
	broken := &brokenAllocates{otherServer{version: protocol}, make(chan struct{}, 100)}
	startWith(t, Config{RunDir: serveOther(t, broken)})
	<-broken.opened
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	select {
	case <-broken.opened:
	case <-ctx.Done():
		t.Error("the plugin does not notice the end of its stream of open Allocates")
	}
}

// An Allocate whose kubelet has gone (its connection broke) is not the kubelet's any more, also if the plugin
// hangs in it, for example in a write to a disk: no later kubelet waits for it, and List is called again.
func TestAllocateOfAKubeletThatIsGone(t *testing.T) {
	server, members, _ := serverAndClient(t)
	looks := countLooks(coordinatorOf(server))
	ctx, cancel := context.WithCancel(t.Context()) // of the kubelet's call
	a := members[vfs].StartAllocate(ctx, []string{"vf0"})
	if _, _, err := members[vfs].Allocated(ctx, a); err != nil {
		t.Fatal(err)
	}
	cancel() // and the plugin never comes to Returned
	listsSoon(t, members[gpus], looks)
}
