// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/plugins/container"
)

// Options configure a Server.
type Options struct {
	KubeletDir   string // the kubelet's root directory; sockets are in directories below it
	Registration Registration
	Preferred    bool // offer GetPreferredAllocation if the Resource is a Preferrer
	// Allocatable returns the kubelet's allocatable devices of a resource, or nil if unknown.
	Allocatable func(ctx context.Context, resource string) (ids []string, err error)
	Observer    RegistrationObserver // may be nil
	// Serve serves the plugin to a kubelet until ctx is done, in place of the sockets below KubeletDir, for
	// simulations of a node; nil for the sockets.
	Serve func(ctx context.Context, plugin v1beta1.DevicePluginServer) error
	Log   *slog.Logger
}

// Server serves one Resource to the kubelet.
type Server struct {
	Options
	resource  Resource
	preferrer Preferrer   // nil if the resource has no preference
	turn      system.Turn // of questions to the preferrer
	devices   *broadcast
	watched   bool   // the plugin watcher finds the socket; otherwise the server registers
	dir       string // directory of the socket, below the kubelet's
}

// New returns a Server; Run starts it. CheckName must accept the name of the Resource.
func New(options Options, resource Resource) (*Server, error) {
	name := resource.Name()
	if err := CheckName(name); err != nil {
		return nil, err
	}
	options.Log = options.Log.With("resource", name)
	if options.Observer == nil {
		options.Observer = unobserved{}
	}
	s := &Server{
		Options: options, resource: resource, turn: make(system.Turn, 1), devices: &broadcast{},
		watched: options.Registration.watched(options.KubeletDir),
		dir:     filepath.Join(options.KubeletDir, pluginsFolder),
	}
	if s.watched {
		s.dir = filepath.Join(options.KubeletDir, registryFolder)
	}
	if options.Preferred {
		s.preferrer, _ = resource.(Preferrer)
	}
	if err := checkSocketPath(filepath.Join(s.dir, newSocketName(s.dir, name))); err != nil {
		return nil, err
	}
	return s, nil
}

// pluginOptions returns the options of the plugin for the kubelet.
func (s *Server) pluginOptions() *v1beta1.DevicePluginOptions {
	return &v1beta1.DevicePluginOptions{GetPreferredAllocationAvailable: s.preferrer != nil}
}

// service implements the kubelet's five calls on one socket.
type service struct {
	v1beta1.UnimplementedDevicePluginServer
	*Server
	stopping    <-chan struct{} // closed before the socket is closed
	streamBegan func()          // called when the kubelet opens a device list stream
	streamEnded func()          // called when a device list stream ends although the socket is not being closed
}

// GetDevicePluginOptions is called by the kubelet during Register.
func (s *service) GetDevicePluginOptions(
	context.Context, *v1beta1.Empty,
) (*v1beta1.DevicePluginOptions, error) {
	return s.pluginOptions(), nil
}

// ListAndWatch sends the complete device list, once and after every change.
func (s *service) ListAndWatch(
	_ *v1beta1.Empty, stream grpc.ServerStreamingServer[v1beta1.ListAndWatchResponse],
) error {
	s.streamBegan()
	err := s.list(stream)
	select {
	case <-s.stopping:
	default:
		s.streamEnded()
	}
	return err
}

func (s *service) list(stream grpc.ServerStreamingServer[v1beta1.ListAndWatchResponse]) error {
	for {
		list, published, changed := s.devices.latest()
		if published {
			if err := s.send(stream, list); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		case <-s.stopping:
			return nil
		}
	}
}

// maxList is the maximum size of a list, in bytes, that the kubelet accepts: its client uses gRPC's default
// limit (pkg/kubelet/cm/devicemanager/plugin/v1beta1/client.go).
const maxList = 4 << 20

// send sends a list. For a list over the limit the kubelet would report only the end of the stream.
func (s *service) send(
	stream grpc.ServerStreamingServer[v1beta1.ListAndWatchResponse], list *v1beta1.ListAndWatchResponse,
) error {
	if size := proto.Size(list); size > maxList {
		s.Log.Error("list of devices exceeds the kubelet's limit; reduce the number of devices, for example the "+
			"replicas of each GPU",
			"devices", len(list.GetDevices()), "bytes", size, "limit", maxList)
		return status.Errorf(codes.ResourceExhausted, "%d devices in %d bytes, more than %d",
			len(list.GetDevices()), size, maxList)
	}
	return stream.Send(list)
}

// GetPreferredAllocation never fails: an error would make the kubelet fail the pod.
func (s *service) GetPreferredAllocation(
	ctx context.Context, request *v1beta1.PreferredAllocationRequest,
) (*v1beta1.PreferredAllocationResponse, error) {
	answer := &v1beta1.PreferredAllocationResponse{}
	for _, container := range request.GetContainerRequests() {
		chosen := s.prefer(ctx, newQuestion(s.resource.Name(), container))
		answer.ContainerResponses = append(answer.ContainerResponses,
			&v1beta1.ContainerPreferredAllocationResponse{DeviceIDs: chosen})
	}
	return answer, nil
}

// Allocate returns one response for each container, whatever the Resource returns: the kubelet loses track of
// the devices if one is missing (pkg/kubelet/cm/devicemanager/manager.go, allocateContainerResources).
func (s *service) Allocate(
	ctx context.Context, request *v1beta1.AllocateRequest,
) (*v1beta1.AllocateResponse, error) {
	answer := &v1beta1.AllocateResponse{}
	for _, container := range request.GetContainerRequests() {
		response, err := s.allocate(ctx, unique(container.GetDevicesIds()))
		if err != nil {
			return nil, err
		}
		answer.ContainerResponses = append(answer.ContainerResponses, response)
	}
	return answer, nil
}

// allocate calls the Resource. A panic fails one pod, not the daemon.
func (s *Server) allocate(ctx context.Context, ids []string) (*v1beta1.ContainerAllocateResponse, error) {
	edits, err := system.SurviveResult(s.Log.With("devices", ids), func() (container.Edits, error) {
		return s.resource.Allocate(ctx, ids)
	})
	if system.Panicked(err) {
		err = status.Errorf(codes.Internal, "allocate %s: internal error", s.resource.Name())
	}
	return Response(edits), err
}

// PreStartContainer does nothing; the options tell the kubelet not to call it.
func (s *service) PreStartContainer(
	context.Context, *v1beta1.PreStartContainerRequest,
) (*v1beta1.PreStartContainerResponse, error) {
	return &v1beta1.PreStartContainerResponse{}, nil
}

// closeOnce returns a function that closes c on its first call.
func closeOnce(c chan struct{}) func() { return sync.OnceFunc(func() { close(c) }) }

// Response returns the edits of a container as the kubelet's API has them.
func Response(e container.Edits) *v1beta1.ContainerAllocateResponse {
	r := &v1beta1.ContainerAllocateResponse{Envs: e.Env}
	for _, node := range e.Nodes {
		r.Devices = append(r.Devices, &v1beta1.DeviceSpec{
			ContainerPath: node.Path, HostPath: node.Host, Permissions: container.Permissions,
		})
	}
	for _, mount := range e.Mounts {
		r.Mounts = append(r.Mounts, &v1beta1.Mount{
			ContainerPath: mount.Path, HostPath: mount.Host, ReadOnly: mount.ReadOnly,
		})
	}
	if len(e.Named.Devices) == 0 {
		return r
	}
	if e.Named.Annotation != "" {
		r.Annotations = map[string]string{e.Named.Annotation: strings.Join(e.Named.Devices, ",")}
	}
	if e.Named.Field {
		for _, name := range e.Named.Devices {
			r.CdiDevices = append(r.CdiDevices, &v1beta1.CDIDevice{Name: name})
		}
	}
	return r
}

// registerLimit is the timeout of a Register call, during which the kubelet calls back.
const registerLimit = 10 * time.Second

// register registers a socket in the kubelet's directory. The socket must already be served: before its reply
// the kubelet asks there for the plugin's options and ignores those in the request
// (pkg/kubelet/cm/devicemanager/manager.go).
func (s *Server) register(ctx context.Context, socket string) error {
	ctx, cancel := context.WithTimeout(ctx, registerLimit)
	defer cancel()
	conn, err := grpc.NewClient("unix:"+s.dir+"/"+kubeletSocket,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("open kubelet.sock: %w", err)
	}
	defer func() { _ = conn.Close() }()
	_, err = v1beta1.NewRegistrationClient(conn).Register(ctx, &v1beta1.RegisterRequest{
		Version:      v1beta1.Version,
		Endpoint:     socket,
		ResourceName: s.resource.Name(),
		Options:      s.pluginOptions(),
	})
	if err != nil {
		return fmt.Errorf("register %s: %w", socket, err)
	}
	return nil
}

const (
	firstPause   = 100 * time.Millisecond
	longestPause = 30 * time.Second
	// stableAfter exceeds longestPause, so that two instances that end each other's registration (a rolling
	// update with surge, on a kubelet before 1.37) do not count their own turns as stable and slow each other
	// down.
	stableAfter = 2 * longestPause
)

// backoff computes the pause between two registrations. The zero value is ready to use.
type backoff struct{ pause time.Duration }

// next returns the pause after a session of the given duration: twice the previous pause, plus up to a
// quarter so that two plugins do not stay in step.
func (b *backoff) next(lasted time.Duration) time.Duration {
	switch {
	case b.pause == 0 || lasted >= stableAfter:
		b.pause = firstPause
	default:
		b.pause = min(2*b.pause, longestPause)
	}
	return b.pause + rand.N(b.pause/4)
}
