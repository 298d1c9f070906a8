// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/system"
)

// Status returns the complete state of the server of a run directory, or an error if no plugin serves or
// takes over within a second.
func Status(ctx context.Context, runDir string) (*api.StatusResponse, error) {
	return call(ctx, runDir, func(client api.CoordinationClient) (*api.StatusResponse, error) {
		return client.Status(ctx, &api.StatusRequest{})
	})
}

// Explain returns the decisions for a pod from the server of a run directory; an empty namespace or container
// means any.
func Explain(ctx context.Context, runDir, namespace, pod, container string) (*api.ExplainResponse, error) {
	return call(ctx, runDir, func(client api.CoordinationClient) (*api.ExplainResponse, error) {
		return client.Explain(ctx, &api.ExplainRequest{Namespace: namespace, Pod: pod, Container: container})
	})
}

// call makes one call to the server of a run directory. Without a server, call waits for a takeover by the
// other plugin, as during an update.
func call[T any](
	ctx context.Context, runDir string, ask func(api.CoordinationClient) (T, error),
) (answer T, err error) {
	conn, err := dialRunDir(runDir)
	if err != nil {
		return answer, err
	}
	defer conn.Close()
	awaitServer(ctx, conn)
	answer, err = ask(api.NewCoordinationClient(conn))
	switch status.Code(err) {
	case codes.OK:
		return answer, nil
	case codes.NotFound, codes.InvalidArgument:
		return answer, errors.New(status.Convert(err).Message())
	case codes.Unavailable:
		return answer, explainSilence(runDir)
	case codes.Unimplemented:
		return answer, fmt.Errorf("ask %s: the running plugin has an older version without this call",
			SocketPath(runDir))
	default:
		return answer, fmt.Errorf("ask %s: %w", SocketPath(runDir), err)
	}
}

// awaitServer connects, and waits for the duration of a takeover.
func awaitServer(ctx context.Context, conn *grpc.ClientConn) {
	ctx, cancel := context.WithTimeout(ctx, electionBurst)
	defer cancel()
	conn.Connect()
	state := conn.GetState()
	for state != connectivity.Ready && conn.WaitForStateChange(ctx, state) {
		state = conn.GetState()
	}
}

// explainSilence explains why the server of a run directory does not answer: only root and the plugins' user
// may access the directory and the socket, so other users cannot know whether a server exists.
func explainSilence(runDir string) error {
	socket := SocketPath(runDir)
	conn, err := net.DialTimeout("unix", socket, time.Second)
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("ask %s: user %d has no permission; run the command as root or in a plugin's pod: %w",
			socket, os.Geteuid(), fs.ErrPermission)
	}
	if err == nil {
		conn.Close()
	}
	return fmt.Errorf("ask %s: no answer; does a plugin with this --run-dir run on this node?", socket)
}

// Enter puts this process into a mode until leave is called, and prepares the run directory. The error is a
// *ModeError if the node is in another mode, by the lock files in all possible run directories or, for
// older device plugins without lock files, by the answers of the plugins.
func Enter(ctx context.Context, own Mode, runDir, kubeletDir string) (leave func(), err error) {
	if err := checkRunDir(runDir); err != nil {
		return nil, err
	}
	leave, err = enterMode(own, runDir, RunDirs(kubeletDir)...)
	if err != nil || own == DevicePlugin {
		return leave, err
	}
	for _, dir := range append([]string{runDir}, RunDirs(kubeletDir)...) {
		if err := checkMode(ctx, own, dir); err != nil {
			leave()
			return nil, err
		}
	}
	return leave, nil
}

// checkMode returns an error if a server in a run directory is in another mode.
func checkMode(ctx context.Context, own Mode, runDir string) error {
	if !Answers(runDir) {
		return nil
	}
	answer, err := Status(ctx, runDir)
	if err != nil || modeOf(answer.GetMode()) == own {
		return nil // a process that does not answer takes no part in a coordination
	}
	return &ModeError{Mode: modeOf(answer.GetMode()), Seen: "they answer at " + SocketPath(runDir)}
}

// modeOf returns the mode of a server; a server without a mode is a device plugin.
func modeOf(reported string) Mode {
	if reported == "" {
		return DevicePlugin
	}
	return Mode(reported)
}

// reconnect is the pause between attempts to connect to the server, as short as a takeover.
var reconnect = backoff.Config{
	BaseDelay: 10 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 200 * time.Millisecond,
}

// dialRunDir returns a client of the coordination socket in a run directory. The client connects on the first
// call and reconnects as needed.
func dialRunDir(runDir string) (*grpc.ClientConn, error) {
	return dialSocket(unixSocket{runDir}, runDir)
}

// dialSocket returns a client of a socket; the name is for errors.
func dialSocket(socket Socket, name string) (*grpc.ClientConn, error) {
	conn, err := socket.Dial(
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: time.Second}))
	if err != nil {
		return nil, fmt.Errorf("open coordination client in %s: %w", name, err)
	}
	return conn, nil
}

// newTransport returns a gRPC server with a service, which checks clients, and limits clients and panics.
func newTransport(
	service api.CoordinationServer, clients credentials.TransportCredentials, log *slog.Logger,
) *grpc.Server {
	g := grpc.NewServer(append(serverLimits(), grpc.Creds(clients), survivingCalls(log),
		survivingStreams(log))...)
	api.RegisterCoordinationServer(g, service)
	return g
}

// serverLimits returns the options that protect a server from any message.
func serverLimits() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxHeaderListSize(16 << 10),
		grpc.MaxConcurrentStreams(maxCalls),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idleTimeout}),
	}
}

// survivingCalls limits a panic to one call; the caller then chooses alone.
func survivingCalls(log *slog.Logger) grpc.ServerOption {
	return grpc.ChainUnaryInterceptor(func(
		ctx context.Context, q any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler,
	) (any, error) {
		return system.SurviveResult(log, func() (any, error) { return handle(ctx, q) })
	})
}

// survivingStreams limits a panic to one stream; the plugin joins again.
func survivingStreams(log *slog.Logger) grpc.ServerOption {
	return grpc.ChainStreamInterceptor(func(
		server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler,
	) error {
		return system.Survive(log, func() error { return handle(server, stream) })
	})
}

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
	if err := prepareRunDir(runDir); err != nil {
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
		if err := socket.AwaitReplaced(ctx, func() {}); err != nil {
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

// Pair rejects a device plugin.
func (tellerServer) Pair(context.Context, *api.PairRequest) (*api.PairResponse, error) {
	return nil, errNotCoordinated()
}

// Status returns the complete state.
func (s tellerServer) Status(ctx context.Context, _ *api.StatusRequest) (*api.StatusResponse, error) {
	answer := s.teller.Status(ctx)
	answer.Protocol, answer.Minor = protocol.major, protocol.minor
	answer.Pid, answer.Mode = int64(os.Getpid()), string(DRA)
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

// Explain returns the decisions for a pod.
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
