// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/tandem-k8s/tandem/coordination/system"
)

// Reasons for the end of a registration while the plugin runs. A new registration solves each.
var (
	errStreamEnded = errors.New("the kubelet ended the device list stream")
	errNoStream    = errors.New("the kubelet did not open a device list stream")
	errNewKubelet  = errors.New("kubelet.sock was created anew")
	errSocketGone  = errors.New("our socket was removed")
)

const (
	streamLimit = 10 * time.Second // from the registration to the first device list stream
	stopLimit   = 5 * time.Second  // for calls in flight when a socket is closed
)

// Run serves the resource until ctx is done and then returns nil. It returns an error if the kubelet's
// directory cannot be used or if Watch returns an error. An absent, restarting or rejecting kubelet is not an
// error.
func (s *Server) Run(ctx context.Context) error {
	serve, err := s.connect()
	if err != nil {
		return err
	}
	g, working := errgroup.WithContext(ctx)
	g.Go(func() error { return s.resource.Watch(working, s.devices.publish) })
	g.Go(func() error { return serve(working) })
	if err := g.Wait(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("offer %s: %w", s.resource.Name(), err)
	}
	return nil
}

// connect prepares the way to the kubelet. The returned function serves the kubelet until ctx is done.
func (s *Server) connect() (serve func(ctx context.Context) error, err error) {
	if s.Serve != nil {
		return s.serveDirectly, nil
	}
	folder, err := openFolder(s.dir, s.Log)
	if err != nil {
		return nil, err
	}
	removed, err := removeStale(s.dir, s.resource.Name())
	if err != nil {
		return nil, err
	}
	if len(removed) > 0 {
		s.Log.Info("removed old sockets", "sockets", removed)
	}
	return func(ctx context.Context) error {
		g, ctx := errgroup.WithContext(ctx)
		g.Go(func() error { return folder.run(ctx) })
		g.Go(func() error { return s.stayRegistered(ctx, folder) })
		return g.Wait()
	}, nil
}

// serveDirectly serves a kubelet without sockets until ctx is done.
func (s *Server) serveDirectly(ctx context.Context) error {
	s.awaitList(ctx)
	s.Observer.Offered(s.resource.Name())
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	return s.Serve(ctx, &service{
		Server: s, stopping: ctx.Done(),
		streamBegan: func() { s.Observer.Registered(s.resource.Name()) },
		streamEnded: func() { s.Observer.Unregistered(s.resource.Name(), errStreamEnded) },
	})
}

// awaitList waits for the first device list until ctx is done.
func (s *Server) awaitList(ctx context.Context) {
	if _, published, changed := s.devices.latest(); !published {
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// stayRegistered registers, and registers again after each failure or end of a registration. It starts when a
// device list exists.
func (s *Server) stayRegistered(ctx context.Context, folder *folder) error {
	s.awaitList(ctx)
	if ctx.Err() != nil {
		return nil
	}
	s.Observer.Offered(s.resource.Name())
	var pause backoff
	var last system.Identity
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
		s.Observer.Unregistered(s.resource.Name(), err)
		if ctx.Err() != nil {
			return nil
		}
		wait := pause.next(time.Since(began))
		s.Log.Warn("not registered", "cause", err, "retry_in", wait)
		folder.awaitKubelet(ctx, kubelet, time.After(wait))
	}
}

// awaitKubelet waits for kubelet.sock without a limit; it returns false when ctx is done. With the plugin
// watcher it does not wait: the watcher finds existing sockets when it starts.
func (s *Server) awaitKubelet(ctx context.Context, folder *folder) (system.Identity, bool) {
	kubelet, ok := folder.kubelet()
	if ok || s.watched {
		return kubelet, true
	}
	s.Log.Info("waiting for the kubelet", "socket", folder.path(kubeletSocket))
	return folder.awaitKubelet(ctx, system.Identity{}, nil)
}

// session serves one socket: it listens, serves and registers, or is found, until a reason to start again.
func (s *Server) session(ctx context.Context, folder *folder, kubelet system.Identity) error {
	listener, earlier, err := s.open()
	if err != nil {
		return err
	}
	stopping, began, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	server := grpc.NewServer()
	v1beta1.RegisterDevicePluginServer(server, &service{
		Server: s, stopping: stopping, streamBegan: closeOnce(began), streamEnded: closeOnce(ended),
	})
	found, served := make(chan error, 1), make(chan error, 1)
	if s.watched {
		registration.RegisterRegistrationServer(server, &introduction{resource: s.resource.Name(), found: found})
	}
	go func() { served <- server.Serve(listener) }()
	defer func() {
		close(stopping)
		stopServer(server)
	}()
	socket := filepath.Base(listener.Addr().String())
	if s.watched {
		s.Log.Info("waiting for the kubelet's plugin watcher", "socket", listener.Addr())
	} else {
		found <- s.register(ctx, socket)
	}
	return s.attend(ctx, folder, attendance{kubelet, socket, earlier, found, began, ended, served})
}

// open listens at a new socket, and returns the sockets of other plugins that are no later ones. It looks for
// them after it listens: of two plugins that start at once, each would else take the other for the later one.
func (s *Server) open() (net.Listener, sockets, error) {
	listener, err := listen(s.dir, s.resource.Name())
	if err != nil {
		return nil, nil, err
	}
	others, err := otherSockets(s.KubeletDir, "", s.resource.Name())
	if err != nil {
		return nil, nil, errors.Join(err, listener.Close())
	}
	return listener, others, nil
}

// attendance holds the events of a session.
type attendance struct {
	kubelet system.Identity
	socket  string
	earlier sockets         // of other plugins
	found   <-chan error    // the kubelet accepted or rejected the socket
	began   <-chan struct{} // a device list stream was opened
	ended   <-chan struct{} // a device list stream ended
	served  <-chan error    // the server ended
}

// attend returns the reason why a registration ended or failed.
func (s *Server) attend(ctx context.Context, folder *folder, a attendance) error {
	var tooLate <-chan time.Time
	guard := s.newGuard(folder.path(a.socket), a.earlier)
	defer guard.stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-a.found:
			if err != nil {
				return err
			}
			s.Log.Info("registered", "socket", a.socket)
			tooLate = time.After(streamLimit)
		case <-a.began:
			a.began = nil
			s.Observer.Registered(s.resource.Name())
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
			if now, ok := folder.kubelet(); ok && now != a.kubelet {
				return errNewKubelet
			}
			if !folder.has(a.socket) {
				return errSocketGone
			}
			guard.changed.Fire()
		}
	}
}

// stopServer lets calls in flight finish: an interrupted Allocate makes the kubelet fail the pod.
func stopServer(server *grpc.Server) {
	late := time.AfterFunc(stopLimit, server.Stop)
	defer late.Stop()
	server.GracefulStop()
}

// sockets are sockets by path, with their creation times: a recreated socket is a different one.
type sockets map[string]time.Time

// otherSockets returns the sockets of other plugins in both directories, for any resource, because a socket
// does not name its resource. It omits the given socket of the resource, and this program's sockets for other
// resources. The second directory does not exist everywhere.
func otherSockets(kubeletDir, socket, resource string) (sockets, error) {
	found := sockets{}
	for _, dir := range []string{pluginsFolder, registryFolder} {
		entries, err := os.ReadDir(filepath.Join(kubeletDir, dir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("read the sockets of other plugins: %w", err)
		}
		for _, entry := range entries {
			name, path := entry.Name(), filepath.Join(kubeletDir, dir, entry.Name())
			own := path == socket || ownForm.MatchString(name) && !namedAfter(path, resource)
			if entry.Type() != fs.ModeSocket || name == kubeletSocket || own {
				continue
			}
			if info, err := entry.Info(); err == nil {
				found[path] = info.ModTime()
			}
		}
	}
	return found, nil
}

// named returns the sockets with a name for a resource that are not among earlier ones: the kubelet uses the
// plugin that registered last.
func (s sockets) named(resource string, earlier sockets) sockets {
	named := maps.Clone(s)
	maps.DeleteFunc(named, func(path string, made time.Time) bool {
		return made.Equal(earlier[path]) || !namedAfter(path, resource)
	})
	return named
}

// living returns the sockets with a listener.
func (s sockets) living() sockets {
	alive := maps.Clone(s)
	maps.DeleteFunc(alive, func(path string, made time.Time) bool {
		info, err := os.Lstat(path)
		return err != nil || !info.ModTime().Equal(made) || dead(path)
	})
	return alive
}

// ownForm is the form of this program's socket names.
var ownForm = regexp.MustCompile("^(.*)" + suffix + "$")

// namedAfter reports whether a socket path has a name that plugins derive from a resource: vendor.com_kind
// and vendor-kind for vendor.com/kind, or this program's form for another instance.
func namedAfter(path, resource string) bool {
	dir, socket := filepath.Split(path)
	if own := ownForm.FindStringSubmatch(socket); own != nil {
		return own[1] == socketPrefix(filepath.Clean(dir), resource)
	}
	vendor, kind, _ := strings.Cut(resource, "/")
	company, _, _ := strings.Cut(vendor, ".")
	name := strings.TrimSuffix(socket, ".sock")
	return name == vendor+"_"+kind || name == company+"-"+kind
}
