package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Why a registration ended while the plugin lives. Each is cured by a new one.
var (
	errStreamEnded = errors.New("the kubelet ended the device list stream")
	errNoStream    = errors.New("the kubelet did not open a device list stream")
	errNewKubelet  = errors.New("kubelet.sock was created anew")
	errSocketGone  = errors.New("our socket was removed")
)

const (
	streamLimit = 10 * time.Second // from registration to the first device list stream
	stopLimit   = 5 * time.Second  // for calls in flight when a socket is given up
)

// Run offers the resource to the kubelet until ctx is done; then it returns nil. It returns an error when the
// kubelet's folder cannot be used or the Resource gives up. A kubelet that is away, restarts or refuses is
// none.
func (s *Server) Run(ctx context.Context) error {
	folder, err := openFolder(s.dir, s.log)
	if err != nil {
		return err
	}
	removed, err := removeStale(s.dir, s.resource.Name())
	if err != nil {
		return errors.Join(err, folder.close())
	}
	if len(removed) > 0 {
		s.log.Info("removed old sockets", "sockets", removed)
	}
	g, working := errgroup.WithContext(ctx)
	g.Go(func() error { return folder.run(working) })
	g.Go(func() error { return s.resource.Watch(working, s.devices.publish) })
	g.Go(func() error { return s.stayRegistered(working, folder) })
	g.Go(func() error { return s.stayRetiring(working) })
	if err := g.Wait(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("offer %s: %w", s.resource.Name(), err)
	}
	return nil
}

// stayRegistered registers, and again whenever a registration fails or ends. It starts once there is a device
// list.
func (s *Server) stayRegistered(ctx context.Context, folder *folder) error {
	if _, published, changed := s.devices.latest(); !published {
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
	s.observer.Offered(s.resource.Name())
	var pause backoff
	var last identity
	for {
		kubelet, ok := s.awaitKubelet(ctx, folder)
		if !ok {
			return nil
		}
		if kubelet != last {
			pause, last = backoff{}, kubelet
		}
		began := time.Now()
		err := s.session(ctx, folder, kubelet)
		s.observer.Unregistered(s.resource.Name(), err)
		if ctx.Err() != nil {
			return nil
		}
		wait := pause.next(time.Since(began))
		s.log.Warn("not registered", "cause", err, "retry_in", wait)
		folder.awaitNewKubelet(ctx, kubelet, wait)
	}
}

// awaitKubelet waits for kubelet.sock, however long that takes. For the plugin watcher there is nothing to
// wait for: it finds what is there when it starts.
func (s *Server) awaitKubelet(ctx context.Context, folder *folder) (identity, bool) {
	kubelet, ok := folder.kubelet()
	if ok || s.watched {
		return kubelet, true
	}
	s.log.Info("waiting for the kubelet", "socket", folder.path(kubeletSocket))
	return folder.awaitKubelet(ctx)
}

// session is the life of one socket: listen, serve, register or be found, until a reason to do all of that
// anew.
func (s *Server) session(ctx context.Context, folder *folder, kubelet identity) error {
	listener, err := listen(s.dir, s.resource.Name())
	if err != nil {
		return err
	}
	stopping, began, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	server := grpc.NewServer()
	v1beta1.RegisterDevicePluginServer(server, &service{
		Server: s, stopping: stopping, streamBegan: once(began), streamEnded: once(ended),
	})
	found, served := make(chan error, 1), make(chan error, 1)
	if s.watched {
		registration.RegisterRegistrationServer(server, &introduction{resource: s.resource.Name(), found: found})
	}
	go func() { served <- server.Serve(listener) }()
	defer func() {
		close(stopping)
		stop(server)
	}()
	socket := filepath.Base(listener.Addr().String())
	if s.watched {
		s.log.Info("waiting for the kubelet's plugin watcher", "socket", listener.Addr())
	} else {
		found <- s.register(ctx, socket)
	}
	return s.attend(ctx, folder, attendance{kubelet, socket, found, began, ended, served})
}

// attendance is what a session looks out for.
type attendance struct {
	kubelet identity
	socket  string
	found   <-chan error    // the kubelet knows the socket, or refuses it
	began   <-chan struct{} // a device list stream was opened
	ended   <-chan struct{} // a device list stream ended
	served  <-chan error    // the server gave up
}

// attend returns why a registration ended, or did not come about.
func (s *Server) attend(ctx context.Context, folder *folder, a attendance) error {
	var tooLate <-chan time.Time
	guard := s.newGuard(folder.path(a.socket))
	defer guard.stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-a.found:
			if err != nil {
				return err
			}
			s.log.Info("registered", "socket", a.socket)
			tooLate = time.After(streamLimit)
		case <-a.began:
			a.began = nil
			s.observer.Registered(s.resource.Name())
			guard.start(ctx)
		case err := <-guard.lost:
			return err
		case <-tooLate:
			if a.began != nil {
				return errNoStream
			}
		case <-a.ended:
			return errStreamEnded
		case err := <-a.served:
			return fmt.Errorf("serve %s: %w", a.socket, err)
		case <-folder.look:
			if folder.isNewKubelet(a.kubelet) {
				return errNewKubelet
			}
			if !folder.has(a.socket) {
				return errSocketGone
			}
			guard.touch()
		}
	}
}

// stop gives calls in flight a moment to end: an Allocate that is cut off makes the kubelet fail the pod.
func stop(server *grpc.Server) {
	late := time.AfterFunc(stopLimit, server.Stop)
	defer late.Stop()
	server.GracefulStop()
}
