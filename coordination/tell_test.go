// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tandem-k8s/tandem/coordination/api"
)

// knowing is a Teller with one resource and one decision.
type knowing struct{ name string }

func (k knowing) Status(context.Context) *api.StatusResponse {
	resources := []*api.Resource{{Name: k.name, Kind: "gpu"}}
	return &api.StatusResponse{Resources: resources, Notes: []string{"a note"}}
}

func (k knowing) Explain(_ context.Context, namespace, pod, _ string) ([]*api.Decision, error) {
	if pod != "train-0" {
		return nil, errors.New("no claim of pod " + namespace + "/" + pod + " is prepared here")
	}
	return []*api.Decision{{Resource: k.name, Known: namespace}}, nil
}

// tells serves until the test ends or stop is called.
func tells(t *testing.T, dir, name string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		Tell(ctx, dir, nil, knowing{name}, slog.New(slog.NewTextHandler(t.Output(), nil)))
	}()
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return stop
}

// awaitTold asks until somebody tells of a resource.
func awaitTold(t *testing.T, dir, name string) *api.StatusResponse {
	t.Helper()
	return await(t, dir, func(s *api.StatusResponse) bool {
		return len(s.GetResources()) == 1 && s.GetResources()[0].GetName() == name
	})
}

func TestTell(t *testing.T) {
	dir := shortDir(t) + "/run"
	stop := tells(t, dir, "amd.com/gpu")
	answer := awaitTold(t, dir, "amd.com/gpu")
	peers := answer.GetPeers()
	if answer.GetMode() != string(DRA) || answer.GetPid() != int64(os.Getpid()) ||
		answer.GetProtocol() != protocol.major || len(answer.GetNotes()) != 1 ||
		len(peers) != 1 || !peers[0].GetServes() || strings.Join(peers[0].GetResources(), " ") != "amd.com/gpu" {
		t.Errorf("%v", answer)
	}
	found, err := Explain(t.Context(), dir, "team", "train-0", "")
	if err != nil || len(found.GetDecisions()) != 1 || found.GetDecisions()[0].GetKnown() != "team" {
		t.Errorf("%v, %v", found, err)
	}
	if _, err := Explain(t.Context(), dir, "team", "train-1", ""); err == nil ||
		err.Error() != "no claim of pod team/train-1 is prepared here" {
		t.Errorf("%v", err)
	}
	stop()
	if _, err := os.Lstat(SocketPath(dir)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left behind: %v", err)
	}
}

// TestTellTurnsPluginsAway: what a device plugin asks is refused with the sentence.
func TestTellTurnsPluginsAway(t *testing.T) {
	dir := shortDir(t) + "/run"
	tells(t, dir, "amd.com/gpu")
	awaitTold(t, dir, "amd.com/gpu")
	conn, err := dialRunDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := api.NewCoordinationClient(conn)
	_, preferred := client.Prefer(t.Context(), &api.PreferRequest{Resource: "amd.com/gpu"})
	_, allocated := client.Allocated(t.Context(), &api.AllocatedRequest{Resource: "amd.com/gpu"})
	_, paired := client.Pair(t.Context(), &api.PairRequest{Resource: "amd.com/gpu"})
	stream, joined := client.Join(t.Context())
	if joined == nil {
		_, joined = stream.Recv()
	}
	for _, err := range []error{preferred, allocated, paired, joined} {
		if status.Code(err) != codes.FailedPrecondition ||
			!strings.Contains(err.Error(), "first remove tandem-dra from") {
			t.Errorf("%v", err)
		}
	}
}

// TestTellTakesOver: at a rollout there are two, and the one that stays tells.
func TestTellTakesOver(t *testing.T) {
	dir := shortDir(t) + "/run"
	stop := tells(t, dir, "old")
	awaitTold(t, dir, "old")
	tells(t, dir, "new")
	stop()
	awaitTold(t, dir, "new")
}

// TestEnter: older plugins, which hold no lock of a mode, are known by their answer.
func TestEnter(t *testing.T) {
	kubelet := shortDir(t)
	dir := serveOther(t, oldPlugin{})
	_, err := Enter(t.Context(), DRA, dir, kubelet)
	held := (*ModeError)(nil)
	if !errors.As(err, &held) || held.Mode != DevicePlugin ||
		!strings.Contains(err.Error(), SocketPath(dir)) {
		t.Fatalf("%v", err)
	}
	leave, err := Enter(t.Context(), DevicePlugin, dir, kubelet) // the other plugin is no reason
	if err != nil {
		t.Fatal(err)
	}
	leave()
	dir = shortDir(t) + "/run"
	tells(t, dir, "amd.com/gpu")
	awaitTold(t, dir, "amd.com/gpu")
	if leave, err = Enter(t.Context(), DRA, dir, kubelet); err != nil {
		t.Fatal(err) // at a rollout there are two
	}
	defer leave()
	if _, err := Enter(t.Context(), DevicePlugin, shortDir(t)+"/run", kubelet); err != nil {
		t.Fatal(err)
	}
	if _, err := Enter(t.Context(), DevicePlugin, dir, kubelet); !errors.As(err, &held) {
		t.Errorf("%v", err)
	}
}

// oldPlugin answers Status as a plugin did before there were modes.
type oldPlugin struct {
	api.UnimplementedCoordinationServer
}

func (oldPlugin) Status(context.Context, *api.StatusRequest) (*api.StatusResponse, error) {
	return &api.StatusResponse{Protocol: 2}, nil
}
