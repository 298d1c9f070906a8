// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
)

// otherServer is one of another version that says nothing but that.
type otherServer struct {
	api.UnimplementedCoordinationServer
	version version
}

func (o *otherServer) Join(stream grpc.BidiStreamingServer[api.Announcement, api.Welcome]) error {
	if err := stream.Send(&api.Welcome{Protocol: o.version.major, Minor: o.version.minor}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

// serveOther serves as a server of another version until the test ends, and returns the run folder.
func serveOther(t *testing.T, server api.CoordinationServer) string {
	t.Helper()
	dir, listener := heldDir(t)
	g := grpc.NewServer(grpc.Creds(peerCredentials{}))
	api.RegisterCoordinationServer(g, server)
	done := make(chan error, 1)
	go func() { done <- g.Serve(listener) }()
	t.Cleanup(func() { g.Stop(); <-done })
	return dir
}

// lockedBuffer is a log that can be read while it is written.
type lockedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
	wrote  chan struct{}
}

func newLog() (*lockedBuffer, *slog.Logger) {
	b := &lockedBuffer{wrote: make(chan struct{}, 1)}
	return b, slog.New(slog.NewTextHandler(b, nil))
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case b.wrote <- struct{}{}:
	default:
	}
	return b.buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

// await waits for a text.
func (b *lockedBuffer) await(t *testing.T, text string) {
	t.Helper()
	for !strings.Contains(b.String(), text) {
		select {
		case <-b.wrote:
		case <-t.Context().Done():
			t.Fatalf("log without %q: %s", text, b.String())
		}
	}
}

// Beside a server of another major version a plugin places devices alone, and says so once.
func TestServerOfAnotherVersion(t *testing.T) {
	log, logger := newLog()
	dir := serveOther(t, &otherServer{version: version{protocol.major + 1, 0}})
	node, _ := startWith(t, Config{RunDir: dir, Log: logger})
	member := node.Member(gpus, device.GPU)
	member.Publish(oneGPU)
	log.await(t, "the server has protocol version 3.0 and the client "+protocol.String())
	if got := choose(t, member, []string{"gpu0"}, nil, 1); len(got) != 1 {
		t.Errorf("prefer: %v", got)
	}
	a := member.StartAllocate(t.Context(), []string{"gpu0"})
	if got, _, err := member.Allocated(t.Context(), a); err != nil || len(got) != 1 {
		t.Errorf("allocated: %v, %v", got, err)
	}
	if !strings.Contains(log.String(), "source=local") || strings.Count(log.String(), "level=ERROR") != 1 {
		t.Errorf("log %s", log.String())
	}
}

// joinAs joins a server as a plugin that announces a resource.
func joinAs(
	t *testing.T, client api.CoordinationClient, m *api.Announcement,
) grpc.BidiStreamingClient[api.Announcement, api.Welcome] {
	t.Helper()
	stream, err := client.Join(t.Context(), grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(m); err != nil {
		t.Fatal(err)
	}
	return stream
}

// An older client of the same major version is served; one of another is told why it is not.
func TestClientsOfOtherVersions(t *testing.T) {
	dir, client := startAndDial(t)
	for _, tc := range []struct {
		version *api.Version
		code    codes.Code
	}{
		{nil, codes.Unimplemented},
		{&api.Version{Major: protocol.major}, codes.OK},
		{&api.Version{Major: protocol.major, Minor: protocol.minor + 1, Build: "v9.1.0"}, codes.OK},
		{&api.Version{Major: protocol.major + 1}, codes.Unimplemented},
		{&api.Version{Major: protocol.major - 1, Minor: 9}, codes.Unimplemented},
	} {
		m := oneGPU.Encode(gpus, device.GPU)
		m.Version = tc.version
		stream := joinAs(t, client, m)
		if tc.code == codes.OK {
			got := await(t, dir, connected(gpus))
			if len(got.GetPeers()) != 1 || got.GetPeers()[0].GetVersion().GetMinor() != tc.version.GetMinor() ||
				got.GetPeers()[0].GetVersion().GetBuild() != tc.version.GetBuild() || !got.GetPeers()[0].GetServes() {
				t.Errorf("version %v: peers %v", tc.version, got.GetPeers())
			}
			if _, err := stream.Recv(); err != nil {
				t.Errorf("version %v: no acknowledgement: %v", tc.version, err)
			}
			if err := stream.CloseSend(); err != nil {
				t.Fatal(err)
			}
			if _, err := stream.Recv(); err == nil {
				t.Error("the stream goes on")
			}
			await(t, dir, connected())
			continue
		}
		if _, err := stream.Recv(); status.Code(err) != tc.code ||
			!strings.Contains(err.Error(), "same version of Tandem") {
			t.Errorf("version %v: %v", tc.version, err)
		}
	}
}

// Status has the known fields of a plugin's version, and none of a later plugin's.
func TestStatusRepeatsNoUnknownFields(t *testing.T) {
	var p peers
	j := p.join(t.Context())
	v := &api.Version{Major: protocol.major, Minor: protocol.minor + 1, Build: "v9"}
	v.ProtoReflect().SetUnknown([]byte{0x7a, 1, 'x'}) // field 15
	p.record(j, &api.Announcement{Resource: gpus, Version: v})
	got := p.encode()[0].GetVersion()
	want := &api.Version{Major: protocol.major, Minor: protocol.minor + 1, Build: "v9"}
	if !proto.Equal(got, want) {
		t.Errorf("version %v, want %v", got, want)
	}
}
