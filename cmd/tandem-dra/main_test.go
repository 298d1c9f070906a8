// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/test/kubelettest"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/test/programs"
)

// asDaemon makes the test binary run the daemon.
const asDaemon = "TANDEM_DRA_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asDaemon) != "" {
		main()
	}
	os.Exit(m.Run())
}

// node is a node in a folder.
type node struct{ root, kubelet string }

func newNode(t *testing.T, machine string) node {
	t.Helper()
	n := node{root: t.TempDir(), kubelet: kubelettest.Dir(t)}
	if err := os.CopyFS(filepath.Join(n.root, "sys"), machines.Sys(t, machine, 2)); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{filepath.Join(n.root, "dev"), filepath.Join(n.kubelet, "plugins_registry")} {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// kubeconfig leads to an API server.
func (n node) kubeconfig(t *testing.T, server string) string {
	t.Helper()
	content, err := json.Marshal(map[string]any{
		"clusters":        []any{map[string]any{"name": "c", "cluster": map[string]any{"server": server}}},
		"contexts":        []any{map[string]any{"name": "c", "context": map[string]any{"cluster": "c"}}},
		"current-context": "c",
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(n.root, "kubeconfig")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func (n node) args(more ...string) []string {
	return append([]string{
		"--sysfs-root=" + filepath.Join(n.root, "sys"), "--dev-root=" + filepath.Join(n.root, "dev"),
		"--kubelet-dir=" + n.kubelet, "--run-dir=" + filepath.Join(n.kubelet, "run"),
		"--cdi-root=" + filepath.Join(n.root, "cdi"), "--devinfo-dir=" + filepath.Join(n.root, "devinfo"),
		"--node-name=node-1",
	}, more...)
}

func start(t *testing.T, args ...string) *programs.Process {
	t.Helper()
	command := exec.Command(os.Args[0], args...)
	command.Args[0] = "tandem-dra"
	command.Env = append(os.Environ(), asDaemon+"=1", "NODE_NAME=", "POD_UID=")
	return programs.Start(t, command)
}

// exits waits for the end and checks the last line.
func exits(t *testing.T, p *programs.Process, code int, parts ...string) {
	t.Helper()
	if got := p.Exit(t); got != code {
		t.Errorf("exit code %d, want %d", got, code)
	}
	for _, part := range parts {
		if last := p.LastLine(); !strings.Contains(last, part) {
			t.Errorf("last line %q lacks %q", last, part)
		}
	}
}

// awaitSocket waits for the driver's registration socket.
func (n node) awaitSocket(t *testing.T, p *programs.Process) (socket string) {
	t.Helper()
	socket = filepath.Join(n.kubelet, "plugins_registry", "tandem.dev-reg.sock")
	p.Until(t, func() bool {
		_, err := os.Stat(socket)
		return err == nil
	})
	return socket
}

func dial(t *testing.T, socket string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// TestProcess: without an API server the daemon serves the kubelet and its status; it ends on a signal
// without leaving a socket.
func TestProcess(t *testing.T) {
	n := newNode(t, "oci-mi300x-derived")
	p := start(t, n.args("--kubeconfig="+n.kubeconfig(t, "http://127.0.0.1:1"))...)
	socket := n.awaitSocket(t, p)
	registration := registerapi.NewRegistrationClient(dial(t, socket))
	info, err := registration.GetInfo(t.Context(), &registerapi.InfoRequest{})
	if err != nil {
		t.Fatal(err)
	}
	driver := drapb.NewDRAPluginClient(dial(t, info.GetEndpoint()))
	claim := &drapb.Claim{Namespace: "team", Name: "a", Uid: "uid-a"}
	answer, err := driver.NodeUnprepareResources(t.Context(),
		&drapb.NodeUnprepareResourcesRequest{Claims: []*drapb.Claim{claim}})
	if err != nil || answer.GetClaims()["uid-a"].GetError() != "" {
		t.Errorf("%v, %v", answer, err)
	}
	status, err := coordination.Status(t.Context(), filepath.Join(n.kubelet, "run"))
	for began := time.Now(); err != nil && time.Since(began) < kubelettest.Limit; {
		status, err = coordination.Status(t.Context(), filepath.Join(n.kubelet, "run"))
	}
	if err != nil || status.GetMode() != string(coordination.DRA) || len(status.GetResources()) != 2 {
		t.Fatalf("%v, %v", status, err)
	}
	if vfs := status.GetResources()[1]; vfs.GetName() != "tandem.dev/rdma_vf" || len(vfs.GetDevices()) != 16 {
		t.Errorf("%v", vfs)
	}
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	exits(t, p, 0)
	told := coordination.SocketPath(filepath.Join(n.kubelet, "run"))
	for _, name := range []string{socket, info.GetEndpoint(), told} {
		if _, err := os.Stat(name); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left behind: %v", name, err)
		}
	}
}

// TestReady: the daemon is ready once registered with the kubelet. Where the GPUs are another vendor's than
// --vendor it publishes VFs and is not ready, and the answer and the log name the value to set.
func TestReady(t *testing.T) {
	const advice = "no GPU is published: gpu.vendor (--vendor) is nvidia, and the GPUs of this node are " +
		"AMD's: set gpu.vendor=amd or auto"
	for name, c := range map[string]struct {
		args   []string
		code   int
		advice string
	}{
		"ready":          {nil, http.StatusOK, ""},
		"another vendor": {[]string{"--vendor=nvidia"}, http.StatusServiceUnavailable, advice},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "oci-mi300x-derived")
			p := start(t, n.args(append(c.args, "--kubeconfig="+n.kubeconfig(t, "http://127.0.0.1:1"),
				"--driver-root-ctr-path="+t.TempDir(), "--health-probe-bind-address=127.0.0.1:0",
				"--metrics-bind-address=127.0.0.1:0")...)...)
			registration := registerapi.NewRegistrationClient(dial(t, n.awaitSocket(t, p)))
			if code, _ := p.Get(t, "/readyz"); code != http.StatusServiceUnavailable {
				t.Errorf("before it is known: %d", code)
			}
			if _, err := registration.NotifyRegistrationStatus(t.Context(),
				&registerapi.RegistrationStatus{PluginRegistered: true}); err != nil {
				t.Fatal(err)
			}
			code, text := p.Get(t, "/readyz")
			if code != c.code || c.advice != "" && text != c.advice+"\n" || !strings.Contains(p.Log(), c.advice) {
				t.Errorf("once it is known: %d, %s; the log is\n%s", code, text, p.Log())
			}
		})
	}
}

// TestGPUsComeLater: VFs are served without GPUs, and GPUs once their driver is loaded.
func TestGPUsComeLater(t *testing.T) {
	n := newNode(t, "oci-mi300x-derived")
	drivers := filepath.Join(n.root, "sys", "bus/pci/drivers")
	if err := os.Rename(filepath.Join(drivers, "amdgpu"), filepath.Join(n.root, "amdgpu")); err != nil {
		t.Fatal(err)
	}
	start(t, n.args("--kubeconfig="+n.kubeconfig(t, "http://127.0.0.1:1"), "--nvidia-recheck=50ms")...)
	await := func(resources int) {
		t.Helper()
		for began := time.Now(); ; {
			status, err := coordination.Status(t.Context(), filepath.Join(n.kubelet, "run"))
			if err == nil && len(status.GetResources()) == resources {
				return
			}
			if time.Since(began) > kubelettest.Limit {
				t.Fatalf("%v, %v", status, err)
			}
		}
	}
	await(1)
	if err := os.Rename(filepath.Join(n.root, "amdgpu"), filepath.Join(drivers, "amdgpu")); err != nil {
		t.Fatal(err)
	}
	await(2)
}

// TestBadInput: one sentence names the fault and the remedy.
func TestBadInput(t *testing.T) {
	n := newNode(t, "oci-mi300x-derived")
	away := "--kubeconfig=" + n.kubeconfig(t, "http://127.0.0.1:1")
	held := filepath.Join(n.root, "held")
	leave, err := coordination.Enter(t.Context(), coordination.DevicePlugin, held, n.kubelet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(leave)
	for name, c := range map[string]struct {
		args []string
		code int
		want []string
	}{
		"no node name": {[]string{"--node-name=", away}, 1, []string{"--node-name", "NODE_NAME"}},
		"no kubelet": {
			[]string{"--kubelet-dir=/none", away}, 1, []string{"--kubelet-dir", "plugins_registry"},
		},
		"no API server":         {nil, 1, []string{"automountServiceAccountToken"}},
		"no kubeconfig":         {[]string{"--kubeconfig=/none"}, 1, []string{"--kubeconfig", "/none"}},
		"no sysfs":              {[]string{"--sysfs-root=/none", away}, 1, []string{"--sysfs-root"}},
		"no such configuration": {[]string{"--config-file=/none", away}, 1, []string{"/none"}},
		"no such flag":          {[]string{"--pairs"}, 2, []string{"--pairs", "--help"}},
		"the other mode": {
			[]string{"--run-dir=" + held, away}, 1, []string{"device plugins", "docs/dra.md"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			exits(t, start(t, n.args(c.args...)...), c.code, c.want...)
		})
	}
}
