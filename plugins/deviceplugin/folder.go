// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/tandem-k8s/tandem/coordination/system"
)

// kubeletSocket is the kubelet's registration socket (KubeletSocket in k8s.io/kubelet's
// v1beta1/constants.go).
const kubeletSocket = "kubelet.sock"

// pluginsFolder is the directory of the plugins' sockets and the kubelet's socket, below the kubelet's root
// directory.
const pluginsFolder = "device-plugins"

// pollPause is the interval between two checks of a directory while inotify is not available.
const pollPause = time.Second

// folder is the kubelet's device plugin directory. Its content is the source of truth; an event only triggers
// a check.
type folder struct {
	dir    string
	opened os.FileInfo
	watch  system.Watch
	look   system.Trigger // the directory may have changed
}

// openFolder opens a directory.
func openFolder(dir string, log *slog.Logger) (*folder, error) {
	info, err := statFolder(dir)
	if err != nil {
		return nil, err
	}
	watch := system.Watch{Paths: []string{dir}, Interval: lookPause, Polling: pollPause, Log: log}
	return &folder{dir: dir, opened: info, watch: watch, look: system.NewTrigger()}, nil
}

// CheckFolder checks that a kubelet's root directory contains the device plugin directory. Its error says
// what to check.
func CheckFolder(kubeletDir string) error {
	_, err := statFolder(filepath.Join(kubeletDir, pluginsFolder))
	return err
}

func statFolder(dir string) (os.FileInfo, error) {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("open %s: the folder does not exist: check that a kubelet runs on this node and "+
			"that --kubelet-dir is its root folder", dir)
	case err != nil:
		return nil, fmt.Errorf("open folder: %w", err)
	case !info.IsDir():
		return nil, fmt.Errorf("open %s: not a folder: check --kubelet-dir", dir)
	}
	return info, nil
}

// run creates tokens until ctx is done: after each possible change, and periodically. It ends when the
// directory itself is gone: the restarted process then looks for a new directory.
func (f *folder) run(ctx context.Context) error {
	return f.watch.Run(ctx, func() error {
		if now, err := os.Stat(f.dir); errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(now, f.opened) {
			return fmt.Errorf("watch %s: the folder was removed: start again once the kubelet has made it anew", f.dir)
		}
		f.look.Fire()
		return nil
	})
}

func (f *folder) path(name string) string { return filepath.Join(f.dir, name) }

func (f *folder) has(name string) bool {
	_, err := os.Lstat(f.path(name))
	return err == nil
}

// kubelet returns the identity of the current kubelet.sock.
func (f *folder) kubelet() (system.Identity, bool) { return system.Identify(f.path(kubeletSocket)) }

// awaitKubelet waits for a kubelet.sock other than the known one; it returns false at the limit, or when ctx
// is done.
func (f *folder) awaitKubelet(
	ctx context.Context, known system.Identity, limit <-chan time.Time,
) (system.Identity, bool) {
	for {
		if now, ok := f.kubelet(); ok && now != known {
			return now, true
		}
		select {
		case <-f.look:
		case <-limit:
			return known, false
		case <-ctx.Done():
			return known, false
		}
	}
}

// maxSocketPath is the maximum length of the path of a unix socket: sun_path in include/uapi/linux/un.h, less
// the final NUL.
const maxSocketPath = 107

// suffix is the pattern that newSocketName appends to a resource's name; suffixLength is its length.
const (
	suffix       = `-[A-Z2-7]{12}\.sock`
	suffixLength = len("-ABCDEFGHIJKL.sock")
)

// socketPrefix returns the common prefix of all sockets of a resource in a directory: "amd.com_gpu". If the
// path would be too long it is a truncated name and a hash: the kubelet accepts resource names that are
// longer than a socket name can be.
func socketPrefix(dir, resource string) string {
	prefix := strings.ReplaceAll(resource, "/", "_")
	room := maxSocketPath - len(dir) - len("/") - suffixLength
	if len(prefix) <= room {
		return prefix
	}
	sum := sha256.Sum256([]byte(resource))
	hash := fmt.Sprintf("-%x", sum[:8])
	return prefix[:max(0, min(len(prefix), room-len(hash)))] + hash
}

// newSocketName returns a name that no socket had before: from 1.37 on the kubelet never releases a name
// whose registration failed (pkg/kubelet/cm/devicemanager/plugin/v1beta1/server.go). The process ID is not
// sufficient: it is 1 in every container.
func newSocketName(dir, resource string) string {
	return socketPrefix(dir, resource) + "-" + rand.Text()[:12] + ".sock"
}

func checkSocketPath(path string) error {
	if len(path) > maxSocketPath {
		return fmt.Errorf("socket path %s has %d bytes and a socket may have %d: use a shorter --kubelet-dir",
			path, len(path), maxSocketPath)
	}
	return nil
}

// listen opens a new socket in dir, accessible only to root. Closing the listener removes the socket.
func listen(dir, resource string) (net.Listener, error) {
	path := filepath.Join(dir, newSocketName(dir, resource))
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("open socket for %s: %w", resource, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("protect socket %s: %w", path, err), listener.Close())
	}
	return listener, nil
}

// removeStale removes sockets of the same resource that earlier processes left. A socket with a listener
// belongs to another instance and stays.
func removeStale(dir, resource string) (removed []string, err error) {
	ours := regexp.MustCompile("^" + regexp.QuoteMeta(socketPrefix(dir, resource)) + suffix + "$")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("look for old sockets: %w", err)
	}
	for _, entry := range entries {
		if entry.Type() != fs.ModeSocket || !ours.MatchString(entry.Name()) {
			continue
		}
		path := filepath.Join(dir, entry.Name())
		if !dead(path) {
			continue
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return removed, fmt.Errorf("remove old socket: %w", err)
		}
		removed = append(removed, entry.Name())
	}
	return removed, nil
}

// dead reports whether a socket has no listener.
func dead(path string) bool {
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		_ = conn.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// registryFolder is the directory in which the kubelet's plugin watcher looks for sockets
// (DefaultKubeletPluginsRegistrationDirName in pkg/kubelet/config/defaults.go). The kubelet does not remove
// these sockets when it starts.
const registryFolder = "plugins_registry"

// Registration is the way in which the kubelet learns of a plugin. A plugin uses only one way at a time,
// because the kubelet would see two plugins.
type Registration string

// Registration values. Auto is the behaviour of the SR-IOV network device plugin, which has no flag for it.
const (
	Register Registration = "register" // the plugin calls Register at device-plugins/kubelet.sock
	Watcher  Registration = "watcher"  // the kubelet's plugin watcher finds the socket in plugins_registry
	Auto     Registration = "auto"     // Watcher if the directory plugins_registry exists, otherwise Register
)

// MarshalText returns the flag's value.
func (r Registration) MarshalText() ([]byte, error) { return []byte(r), nil }

// UnmarshalText accepts the three values.
func (r *Registration) UnmarshalText(text []byte) error {
	switch way := Registration(text); way {
	case Auto, Register, Watcher:
		*r = way
		return nil
	default:
		return fmt.Errorf("want %s, %s or %s", Auto, Register, Watcher)
	}
}

func (r Registration) watched(kubeletDir string) bool {
	info, err := os.Stat(filepath.Join(kubeletDir, registryFolder))
	return r == Watcher || r == Auto && err == nil && info.IsDir()
}

// introduction answers the plugin watcher on a socket that also serves the device plugin API
// (pkg/kubelet/pluginmanager/operationexecutor/operation_generator.go).
type introduction struct {
	registration.UnimplementedRegistrationServer
	resource string
	found    chan<- error // must have room for the first answer
}

// GetInfo identifies the plugin. The endpoint is empty, which means the socket of the call: the kubelet may
// have another path to the directory.
func (i *introduction) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type:              registration.DevicePlugin,
		Name:              i.resource,
		SupportedVersions: []string{v1beta1.Version},
	}, nil
}

// NotifyRegistrationStatus receives the result of the registration.
func (i *introduction) NotifyRegistrationStatus(
	_ context.Context, status *registration.RegistrationStatus,
) (*registration.RegistrationStatusResponse, error) {
	var refused error
	if !status.GetPluginRegistered() {
		refused = fmt.Errorf("the kubelet refused the plugin: %s", status.GetError())
	}
	select {
	case i.found <- refused:
	default: // repeated notification after a rejection: this socket is already being closed
	}
	return &registration.RegistrationStatusResponse{}, nil
}
