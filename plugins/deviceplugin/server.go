package deviceplugin

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/coordination/bounded"
)

// Options say how a Server meets the kubelet.
type Options struct {
	KubeletDir   string // the kubelet's root folder; sockets are in device-plugins or plugins_registry below it
	Registration Registration
	Preferred    bool     // offer GetPreferredAllocation, where the Resource is a Preferrer
	Listed       []Device // that an earlier process told the kubelet of; unhealthy unless the Resource has them
	// Needed tells which devices of the resource the kubelet may look up: those it counts as healthy, and those
	// that containers hold. Others leave the list some time after they are gone. Nil: none ever does.
	Needed func() (map[string]bool, error)
	// Allocatable tells which devices of a resource the kubelet has to give; nil where that is not known.
	Allocatable func(ctx context.Context, resource string) (ids []string, err error)
	Observer    Observer // nil for none
	Log         *slog.Logger
}

// Server offers one Resource to the kubelet.
type Server struct {
	resource    Resource
	preferrer   Preferrer // nil for none
	asking      bounded.Turn
	devices     *broadcast
	watched     bool   // the kubelet's plugin watcher finds our socket; else we register at kubelet.sock
	dir         string // of our socket, below the kubelet's
	kubeletDir  string
	needed      func() (map[string]bool, error)
	allocatable func(ctx context.Context, resource string) ([]string, error)
	observer    Observer
	log         *slog.Logger
}

// New makes a Server; Run starts it. The name of the Resource has to be one that CheckName accepts.
func New(options Options, resource Resource) (*Server, error) {
	name := resource.Name()
	if err := CheckName(name); err != nil {
		return nil, err
	}
	s := &Server{
		resource:    resource,
		asking:      make(bounded.Turn, 1),
		devices:     newBroadcast(options.Listed),
		watched:     options.Registration.watched(options.KubeletDir),
		dir:         filepath.Join(options.KubeletDir, pluginsFolder),
		kubeletDir:  options.KubeletDir,
		needed:      options.Needed,
		allocatable: options.Allocatable,
		observer:    options.Observer,
		log:         options.Log.With("resource", name),
	}
	if s.observer == nil {
		s.observer = unobserved{}
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

func (s *Server) options() *v1beta1.DevicePluginOptions {
	return &v1beta1.DevicePluginOptions{GetPreferredAllocationAvailable: s.preferrer != nil}
}

// service answers the kubelet's five calls on one socket.
type service struct {
	v1beta1.UnimplementedDevicePluginServer
	*Server
	stopping    <-chan struct{} // closed when the socket is about to be given up
	streamBegan func()          // the kubelet opened a device list stream
	streamEnded func()          // a device list stream ended although the socket is not being given up
}

// GetDevicePluginOptions is called by the kubelet while it handles our Register.
func (s *service) GetDevicePluginOptions(
	context.Context, *v1beta1.Empty,
) (*v1beta1.DevicePluginOptions, error) {
	return s.options(), nil
}

// ListAndWatch sends the full device list, once and again on every change.
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

// maxList is the longest list, in bytes, that the kubelet takes: its client has gRPC's own limit
// (pkg/kubelet/cm/devicemanager/plugin/v1beta1/client.go).
const maxList = 4 << 20

// send sends a list. Of one that is too long the kubelet would say nothing but that the stream ended.
func (s *service) send(
	stream grpc.ServerStreamingServer[v1beta1.ListAndWatchResponse], list *v1beta1.ListAndWatchResponse,
) error {
	if size := proto.Size(list); size > maxList {
		s.log.Error("the kubelet cannot take so long a list of devices: offer fewer, such as fewer "+
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
		question := newQuestion(container)
		answer.ContainerResponses = append(answer.ContainerResponses,
			&v1beta1.ContainerPreferredAllocationResponse{DeviceIDs: s.prefer(ctx, question)})
	}
	return answer, nil
}

// Allocate answers with one response per container, whatever the Resource returns: the kubelet loses track of
// the devices when one is missing (pkg/kubelet/cm/devicemanager/manager.go, allocateContainerResources).
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

// allocate asks the Resource. A panic in it costs one pod, not the daemon.
func (s *Server) allocate(
	ctx context.Context, ids []string,
) (response *v1beta1.ContainerAllocateResponse, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			s.log.Error("allocate panicked", "devices", ids, "panic", cause, "stack", stack())
			response, err = nil, status.Errorf(codes.Internal, "allocate %s: internal error", s.resource.Name())
		}
	}()
	response, err = s.resource.Allocate(ctx, ids)
	if response == nil {
		response = &v1beta1.ContainerAllocateResponse{}
	}
	return response, err
}

// PreStartContainer does nothing; the kubelet is told not to call it.
func (s *service) PreStartContainer(
	context.Context, *v1beta1.PreStartContainerRequest,
) (*v1beta1.PreStartContainerResponse, error) {
	return &v1beta1.PreStartContainerResponse{}, nil
}

// once makes a function that closes c when it is first called.
func once(c chan struct{}) func() { return sync.OnceFunc(func() { close(c) }) }
