// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/system"
)

// Teller describes the node if no plugins coordinate: the DRA driver. The methods must be safe for concurrent
// use.
type Teller interface {
	// Status returns all devices. The caller fills in protocol, process, peers and mode.
	Status(ctx context.Context) *api.StatusResponse
	// Explain returns the decisions for a pod; an empty namespace or container means any. The error is the
	// reason for the lack of decisions.
	Explain(ctx context.Context, namespace, pod, container string) ([]*api.Decision, error)
}

// takeOver is the pause between two attempts to serve while another process serves, as during a rollout.
const takeOver = time.Second

// Tell answers Status and Explain at a socket, nil for the socket of the run directory, until ctx is done,
// except while another process serves. An unusable directory is logged once: only observers need the socket.
func Tell(ctx context.Context, runDir string, socket Socket, teller Teller, log *slog.Logger) {
	if socket == nil {
		socket = unixSocket{runDir}
	}
	failure := system.Complaint{}
	for ctx.Err() == nil {
		err := serveTeller(ctx, runDir, socket, teller, log)
		if err != nil && !errors.Is(err, errLocked) && failure.IsNew(err) {
			log.Error("status socket not available; `tandem status` does not work; retrying",
				"run_dir", runDir, "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(takeOver):
		}
	}
}

// serveTeller answers at the socket until ctx is done or another process replaces the socket.
func serveTeller(
	ctx context.Context, runDir string, socket Socket, teller Teller, log *slog.Logger,
) error {
	if err := makeRunDir(runDir); err != nil {
		return err
	}
	release, err := tryLock(runDir)
	if err != nil {
		return err
	}
	defer release()
	listener, err := socket.Listen()
	if err != nil {
		return err
	}
	log.Info("serving status", "socket", SocketPath(runDir))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	g := newTransport(tellerServer{teller: teller}, socket.Credentials(), log)
	served, looked := make(chan error, 1), make(chan struct{})
	go func() {
		err := g.Serve(listener)
		cancel(err)
		served <- err
	}()
	go func() {
		defer close(looked)
		if err := listener.AwaitReplaced(ctx, func() {}); err != nil {
			cancel(err)
		}
	}()
	<-ctx.Done()
	g.Stop()
	<-looked
	if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve coordination socket: %w", err)
	}
	if errors.Is(context.Cause(ctx), errReplaced) {
		return errReplaced // the path now belongs to another process
	}
	return socket.Remove()
}

// tellerServer serves a Teller on the socket.
type tellerServer struct {
	api.UnimplementedCoordinationServer
	teller Teller
}

// errNotCoordinated is the answer to a device plugin.
func errNotCoordinated() error {
	return status.Error(codes.FailedPrecondition,
		(&ModeError{Mode: DRA, Seen: "it serves here"}).Error())
}

// Join rejects a device plugin.
func (tellerServer) Join(grpc.BidiStreamingServer[api.Announcement, api.Welcome]) error {
	return errNotCoordinated()
}

// Prefer rejects a device plugin.
func (tellerServer) Prefer(context.Context, *api.PreferRequest) (*api.PreferResponse, error) {
	return nil, errNotCoordinated()
}

// Allocated rejects a device plugin.
func (tellerServer) Allocated(context.Context, *api.AllocatedRequest) (*api.AllocatedResponse, error) {
	return nil, errNotCoordinated()
}

// Returned rejects a device plugin.
func (tellerServer) Returned(context.Context, *api.ReturnedRequest) (*api.ReturnedResponse, error) {
	return nil, errNotCoordinated()
}

// OpenAllocates rejects a device plugin.
func (tellerServer) OpenAllocates(
	grpc.ClientStreamingServer[api.OpenAllocatesRequest, api.OpenAllocatesResponse],
) error {
	return errNotCoordinated()
}

// Pair rejects a device plugin.
func (tellerServer) Pair(context.Context, *api.PairRequest) (*api.PairResponse, error) {
	return nil, errNotCoordinated()
}

// Status returns the complete state.
func (s tellerServer) Status(ctx context.Context, _ *api.StatusRequest) (*api.StatusResponse, error) {
	answer := s.teller.Status(ctx)
	answer.Protocol, answer.Minor = protocol.major, protocol.minor
	answer.Pid, answer.Mode = int64(os.Getpid()), string(DRA)
	own := &api.Peer{Pid: answer.GetPid(), Serves: true, Version: ownVersion()}
	for _, r := range answer.GetResources() {
		own.Resources = append(own.Resources, r.GetName())
	}
	answer.Peers = []*api.Peer{own}
	return answer, nil
}

// Explain returns the decisions for a pod.
func (s tellerServer) Explain(ctx context.Context, q *api.ExplainRequest) (*api.ExplainResponse, error) {
	return explain(ctx, q, s.teller.Explain)
}
