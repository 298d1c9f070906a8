// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/topology"
)

// Resources of the two plugins.
const (
	gpus = "amd.com/gpu"
	vfs  = "nvidia.com/vf"
)

// sysRoot lays out the smallest sysfs: a list of PCI devices with nothing in it.
func sysRoot(t testing.TB) string {
	t.Helper()
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "bus/pci/devices"), 0o755); err != nil {
		t.Fatal(err)
	}
	return root
}

// shortDir makes a folder whose sockets have paths that can be bound.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "t")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// startAndDial starts a plugin in a new run folder, and returns the folder and a client of the plugin.
func startAndDial(t *testing.T) (dir string, client api.CoordinationClient) {
	t.Helper()
	dir = filepath.Join(shortDir(t), "run")
	start(t, dir)
	conn, err := dialRunDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return dir, api.NewCoordinationClient(conn)
}

// heldDir makes a run folder whose lock and socket are ours, as those of a server that is to misbehave.
func heldDir(t *testing.T) (dir string, listener *net.UnixListener) {
	t.Helper()
	dir = filepath.Join(shortDir(t), "run")
	if err := makeRunDir(dir); err != nil {
		t.Fatal(err)
	}
	release, err := tryLock(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	if listener, err = (unixSocket{dir}).bind(); err != nil {
		t.Fatal(err)
	}
	return dir, listener
}

// start runs a node until the test ends or the returned function is called.
func start(t testing.TB, runDir string) (*Node, func()) {
	t.Helper()
	return startWith(t, Config{RunDir: runDir})
}

// startWith is run until the test ends or the returned function is called.
func startWith(t testing.TB, config Config) (*Node, func()) {
	t.Helper()
	node, stop := run(t, config)
	t.Cleanup(stop)
	return node, stop
}

// join starts a plugin with a resource, and waits until the server has all resources.
func join(
	t testing.TB, config Config, resource string, own device.Announcement, all ...string,
) (*Node, *Member, func()) {
	t.Helper()
	node, stop := startWith(t, config)
	member := node.Member(resource, map[string]device.Kind{gpus: device.GPU, vfs: device.VF}[resource])
	member.Publish(own)
	await(t, config.RunDir, connected(all...))
	return node, member, stop
}

// run runs a node until the returned function is called. The node's machine and kubelet are empty folders
// unless they are given.
func run(t testing.TB, config Config) (*Node, func()) {
	t.Helper()
	if config.SysRoot == "" {
		config.SysRoot = sysRoot(t)
	}
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	if config.KubeletDir == "" {
		config.KubeletDir = shortDir(t)
	}
	node, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- node.Run(ctx) }()
	stopped := false
	stop := func() {
		if !stopped {
			stopped = true
			cancel()
			if err := <-done; err != nil {
				t.Errorf("run node: %v", err)
			}
		}
	}
	return node, stop
}

// await polls the status until it is as wanted: the other side of a socket has no event for us.
func await(t testing.TB, runDir string, wanted func(*api.StatusResponse) bool) *api.StatusResponse {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // of 16,384 devices on a busy machine too
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		status, err := Status(ctx, runDir)
		if err == nil && wanted(status) {
			return status
		}
		select {
		case <-ctx.Done():
			t.Fatalf("status never as wanted: %v, %v", status, err)
		case <-tick.C:
		}
	}
}

// choose answers a question as the kubelet's side of a plugin does: by the coordinator in its time, else
// alone.
func choose(t testing.TB, m *Member, available, mustInclude []string, size uint32) []string {
	t.Helper()
	q := &api.PreferRequest{
		Resource: m.announced.resource, Available: available, MustInclude: mustInclude, Size: size,
	}
	ctx, cancel := context.WithTimeout(t.Context(), system.CoordinatorLimit)
	defer cancel()
	chosen, err := m.Prefer(ctx, q)
	if err != nil {
		return m.Alone(q, err)
	}
	return chosen
}

func connected(names ...string) func(*api.StatusResponse) bool {
	return func(s *api.StatusResponse) bool {
		var found []string
		for _, r := range s.GetResources() {
			if r.GetConnected() {
				found = append(found, r.GetName())
			}
		}
		return slices.Equal(found, names)
	}
}

var oneGPU = device.Announcement{
	Devices: []device.Device{
		{ID: "gpu0", Address: topology.Address{Bus: 1}, NUMA: topology.Node(0), Healthy: true},
	},
}

var oneVF = device.Announcement{
	Devices: []device.Device{{ID: "vf0", Address: topology.Address{Bus: 2}, Healthy: true}},
}

// A rolling update with surge: the new plugin has joined when the old one goes. What the new one has
// announced counts, also if the old one announces later, and the resource is gone with the last plugin only.
func TestResourceIsOfItsNewestPlugin(t *testing.T) {
	var p peers
	var got []string
	count := func(j *joined, m *api.Announcement) error {
		got = append(got, fmt.Sprintf("%d of plugin %d", len(m.GetDevices()), slices.Index(p.all, j)))
		p.encode() // people do not wait for an announcement
		return nil
	}
	again := func(j *joined, m *api.Announcement) { _ = count(j, m) }
	gone := func(resource string) { got = append(got, resource+" is gone") }
	first, second, third := p.join(t.Context()), p.join(t.Context()), p.join(t.Context())
	devices := 0
	for _, j := range []*joined{first, second, first, third} {
		devices++
		m := &api.Announcement{Resource: gpus, Devices: make([]*api.Device, devices)}
		if err := p.announce(j, m, count); err != nil {
			t.Fatal(err)
		}
	}
	for _, j := range []*joined{third, first, second} {
		p.leave(j, again, gone)
	}
	want := []string{"1 of plugin 0", "2 of plugin 1", "4 of plugin 2", "2 of plugin 1", gpus + " is gone"}
	if !slices.Equal(got, want) {
		t.Errorf("counted: %q, want %q", got, want)
	}
}

func TestMemberAnswersAlone(t *testing.T) {
	// The node does not run: nobody serves.
	node, err := New(Config{
		RunDir:     filepath.Join(shortDir(t), "run"),
		SysRoot:    sysRoot(t),
		KubeletDir: shortDir(t),
		Log:        slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { node.conn.Close(); node.election.sources.Close() })
	member := node.Member(gpus, device.GPU)
	member.Publish(oneGPU)
	got := choose(t, member, []string{"b", "a", "c"}, []string{"c"}, 2)
	if !slices.Contains(got, "c") || len(got) != 2 {
		t.Errorf("prefer 2 of a, b, c with c: %v", got)
	}
	a := member.StartAllocate(t.Context(), []string{"b", "a"})
	if got, _, err := member.Allocated(t.Context(), a); err != nil || !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("allocated: %v, %v", got, err)
	}
}

func TestRunDirIsOursAlone(t *testing.T) {
	dir := filepath.Join(shortDir(t), "run")
	_, stop := start(t, dir)
	await(t, dir, func(*api.StatusResponse) bool { return true })
	for name, mode := range map[string]os.FileMode{
		dir: 0o700, SocketPath(dir): 0o600, filepath.Join(dir, "lock"): 0o600,
	} {
		info, err := os.Stat(name)
		if err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v; want %v", name, info.Mode(), err, mode)
		}
	}
	stop()
	if _, err := os.Stat(SocketPath(dir)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("socket after stop: %v", err)
	}
}

func TestBadRunDir(t *testing.T) {
	t.Parallel()
	base := shortDir(t)
	file := filepath.Join(base, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(base, "link")
	if err := os.Symlink(base, link); err != nil {
		t.Fatal(err)
	}
	full := filepath.Join(base, "full")
	if err := errors.Join(os.WriteFile(SocketPath(base), nil, 0o600), os.Mkdir(full, 0o700),
		os.Symlink("/dev/full", filepath.Join(full, "lock"))); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ dir, want string }{
		"a file": {file, file}, "a link": {link, link}, "below a file": {filepath.Join(file, "x"), file + "/x"},
		"a file in the socket's place": {base, "remove the file"}, "a link in the lock's place": {full, full},
	} {
		_, err := New(Config{RunDir: c.dir, SysRoot: sysRoot(t)})
		if err == nil || !strings.Contains(err.Error(), c.want) ||
			c.dir == full && !strings.Contains(err.Error(), "--run-dir") {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
	for dir, want := range map[string]string{
		filepath.Join(base, strings.Repeat("x", 100)): "--run-dir", base: "is not a socket",
	} {
		if _, err := (unixSocket{dir}).bind(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("listen in %s: %v, want %q", dir, err, want)
		}
	}
}

// A run folder on a read-only file system, or of somebody else, ends the start with a sentence that names it.
func TestForeignRunDir(t *testing.T) {
	base := shortDir(t)
	for name, make := range map[string]func(dir string) error{
		"read-only": func(dir string) error {
			return syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_RDONLY, "size=16k")
		},
		"no inode left":   func(dir string) error { return syscall.Mount("tmpfs", dir, "tmpfs", 0, "nr_inodes=1") },
		"somebody else's": func(dir string) error { return os.Chown(dir, 4242, 4242) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(base, strings.ReplaceAll(name, " ", "-"))
			err := errors.Join(os.Mkdir(dir, 0o700), make(dir))
			if errors.Is(err, syscall.EPERM) {
				t.Skip("needs root")
			} else if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = syscall.Unmount(dir, 0) })
			if _, err := New(Config{RunDir: dir, SysRoot: sysRoot(t)}); err == nil ||
				!strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "--run-dir") {
				t.Errorf("error %v does not name %s and what to do", err, dir)
			}
		})
	}
}

// A socket that is replaced before the server begins to watch it is noticed all the same.
func TestSocketIsReplacedAtOnce(t *testing.T) {
	dir := filepath.Join(shortDir(t), "run")
	if err := makeRunDir(dir); err != nil {
		t.Fatal(err)
	}
	listener, err := (unixSocket{dir}).Listen()
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	foreign, err := net.Listen("unix", filepath.Join(filepath.Dir(dir), "foreign"))
	if err != nil {
		t.Fatal(err)
	}
	defer foreign.Close()
	if err := os.Rename(foreign.Addr().String(), SocketPath(dir)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), electionPause/2)
	defer cancel()
	if err := listener.AwaitReplaced(ctx, func() {}); !errors.Is(err, errReplaced) {
		t.Errorf("%v, want %v", err, errReplaced)
	}
}

// A server whose socket is gone, or is another process's, serves anew at once: nobody new would find it.
func TestReplacedSocketIsNoticed(t *testing.T) {
	for name, replace := range map[string]func(socket, other string) error{
		"removed":  func(socket, _ string) error { return os.Remove(socket) },
		"replaced": func(socket, other string) error { return os.Rename(other, socket) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(shortDir(t), "run")
			node, _, _ := join(t, Config{RunDir: dir}, gpus, oneGPU, gpus)
			foreign, err := net.Listen("unix", filepath.Join(filepath.Dir(dir), "foreign"))
			if err != nil {
				t.Fatal(err)
			}
			defer foreign.Close()
			before, began := node.election.serving.Load(), time.Now()
			if err := replace(SocketPath(dir), foreign.Addr().String()); err != nil {
				t.Fatal(err)
			}
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for now := before; now == nil || now == before; now = node.election.serving.Load() {
				<-tick.C
			}
			await(t, dir, connected(gpus))
			if took := time.Since(began); took > electionPause/2 {
				t.Errorf("served anew after %s", took)
			}
		})
	}
}

// Who asks while one server is gone and the next has not begun waits for it.
func TestStatusWaitsForTheNextServer(t *testing.T) {
	dir := filepath.Join(shortDir(t), "run")
	if err := makeRunDir(dir); err != nil {
		t.Fatal(err)
	}
	dying, err := (unixSocket{dir}).bind()
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() {
		_, err := Status(t.Context(), dir)
		answered <- err
	}()
	conn, err := dying.Accept()
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	dying.Close()
	start(t, dir)
	if err := <-answered; err != nil {
		t.Error(err)
	}
}
