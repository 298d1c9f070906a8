// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/topology"
)

// A plugin of the version before tells the end of each Allocate over Join, in a message that announces
// nothing and gets no response. A server that ends the membership for it is taken for foreign.
func TestEndOfAnOlderPlugin(t *testing.T) {
	dir := filepath.Join(shortDir(t), "run")
	start(t, dir)
	conn, err := dialRunDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := api.NewCoordinationClient(conn).Join(t.Context(), grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	m := oneVF.Encode(vfs, device.VF)
	m.Version = &api.Version{Major: protocol.major, Minor: 4, Build: "before"}
	if err := stream.Send(m); err != nil {
		t.Fatal(err)
	}
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

// A plugin whose stream broke by a panic or a rejection pauses for electionPause, longer than maxUntold, and
// lives: an Allocate that takes as long (a run directory that hangs) is still open.
func TestBrokenStreamEndsNoLongAllocate(t *testing.T) {
	server, members, log := serverAndClient(t)
	c := server.election.serving.Load().coordinator
	looks := countLooks(c)
	allocate(t, members[vfs], "vf0")
	own := c.Machine
	c.Machine = refreshed{own, func(device.Announcement) error { panic("a mistake") }}
	members[vfs].Publish(device.Announcement{
		Devices: []device.Device{{ID: "vf0", Address: topology.Address{Bus: 2}, Healthy: true}},
	})
	log.await(t, "lost the coordination server")
	c.Machine = own
	<-time.After(1100 * time.Millisecond)
	listsNever(t, members[gpus], looks)
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
	dir, listener := heldDir(t)
	g := grpc.NewServer(grpc.Creds(peerCredentials{}))
	broken := &brokenAllocates{otherServer{version: protocol}, make(chan struct{}, 100)}
	api.RegisterCoordinationServer(g, broken)
	done := make(chan error, 1)
	go func() { done <- g.Serve(listener) }()
	t.Cleanup(func() { g.Stop(); <-done })
	startWith(t, Config{RunDir: dir})
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
	looks := countLooks(server.election.serving.Load().coordinator)
	ctx, cancel := context.WithCancel(t.Context()) // of the kubelet's call
	a := members[vfs].StartAllocate(ctx, []string{"vf0"})
	if _, _, err := members[vfs].Allocated(ctx, a); err != nil {
		t.Fatal(err)
	}
	cancel() // and the plugin never comes to Returned
	listsSoon(t, members[gpus], looks)
}
