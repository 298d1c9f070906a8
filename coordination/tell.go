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
	"github.com/tandem-k8s/tandem/coordination/mode"
)

// Teller is who knows how the node is where no plugins coordinate anything: the DRA driver. Its methods may
// be called at the same time.
type Teller interface {
	// Status tells of all devices. Protocol, process, peers and mode are filled in for it.
	Status(ctx context.Context) *api.StatusResponse
	// Explain tells what was decided for a pod; an empty namespace or container means any. An error says that
	// there is nothing to tell, and why.
	Explain(ctx context.Context, namespace, pod, container string) ([]*api.Decision, error)
}

// takeOver is the pause between two attempts to serve what another process serves: while a rollout replaces
// it there are two.
const takeOver = time.Second

// Tell answers Status and Explain at the socket of a run folder until ctx is done, and is silent while
// another process does. A folder that cannot be used is logged once: nothing but being looked at depends on
// it.
func Tell(ctx context.Context, runDir string, teller Teller, log *slog.Logger) {
	complaint := ""
	for ctx.Err() == nil {
		err := tell(ctx, runDir, teller, log)
		if err != nil && !errors.Is(err, errLocked) && err.Error() != complaint {
			complaint = err.Error()
			log.Error("nobody can ask how the node is until that is possible", "run_dir", runDir, "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(takeOver):
		}
	}
}

func tell(ctx context.Context, runDir string, teller Teller, log *slog.Logger) error {
	if err := prepareRunDir(runDir); err != nil {
		return err
	}
	release, err := tryLock(runDir)
	if err != nil {
		return err
	}
	defer release()
	listener, err := listen(runDir)
	if err != nil {
		return err
	}
	log.Info("serve status", "socket", SocketPath(runDir))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	g := grpc.NewServer(append(limits(), grpc.Creds(peerCredentials{}), survivingCalls(log),
		survivingStreams(log))...)
	api.RegisterCoordinationServer(g, tellerServer{teller: teller})
	served, looked := make(chan error, 1), make(chan struct{})
	go func() {
		err := g.Serve(newLimitedListener(listener))
		cancel(err)
		served <- err
	}()
	go func() {
		defer close(looked)
		if err := awaitReplaced(ctx, runDir, func() {}); err != nil {
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
		return errReplaced // what is at the path now is another's
	}
	return removeSocket(runDir)
}

// tellerServer puts a Teller on the socket.
type tellerServer struct {
	api.UnimplementedCoordinationServer
	teller Teller
}

// errNotCoordinated is the answer to a device plugin.
func errNotCoordinated() error {
	return status.Error(codes.FailedPrecondition,
		(&mode.HeldError{Mode: mode.DRA, Seen: "it serves here"}).Error())
}

// Join turns a device plugin away.
func (tellerServer) Join(grpc.BidiStreamingServer[api.Announcement, api.Welcome]) error {
	return errNotCoordinated()
}

// Prefer turns a device plugin away.
func (tellerServer) Prefer(context.Context, *api.PreferRequest) (*api.PreferResponse, error) {
	return nil, errNotCoordinated()
}

// Allocated turns a device plugin away.
func (tellerServer) Allocated(context.Context, *api.AllocatedRequest) (*api.AllocatedResponse, error) {
	return nil, errNotCoordinated()
}

// Pair turns a device plugin away.
func (tellerServer) Pair(context.Context, *api.PairRequest) (*api.PairResponse, error) {
	return nil, errNotCoordinated()
}

// Status tells everything.
func (s tellerServer) Status(ctx context.Context, _ *api.StatusRequest) (*api.StatusResponse, error) {
	answer := s.teller.Status(ctx)
	answer.Protocol, answer.Minor = protocol.major, protocol.minor
	answer.Pid, answer.Mode = int64(os.Getpid()), string(mode.DRA)
	own := &api.Peer{
		Pid: answer.GetPid(), Serves: true,
		Version: &api.Version{Major: protocol.major, Minor: protocol.minor, Build: build()},
	}
	for _, r := range answer.GetResources() {
		own.Resources = append(own.Resources, r.GetName())
	}
	answer.Peers = []*api.Peer{own}
	return answer, nil
}

// Explain tells what was decided for a pod.
func (s tellerServer) Explain(ctx context.Context, q *api.ExplainRequest) (*api.ExplainResponse, error) {
	if q.GetPod() == "" {
		return nil, status.Error(codes.InvalidArgument, "explain which pod?")
	}
	if err := checkIDs(q.GetPod()); err != nil {
		return nil, err
	}
	found, err := s.teller.Explain(ctx, q.GetNamespace(), q.GetPod(), q.GetContainer())
	if err != nil {
		return nil, status.Error(codes.NotFound, err.Error())
	}
	return &api.ExplainResponse{Decisions: found}, nil
}
