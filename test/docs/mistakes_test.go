// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/test/kubelettest"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/test/programs"
)

// TestMistakes: tandem-rdma prints and does with wrong pools what the table says.
func TestMistakes(t *testing.T) {
	t.Parallel()
	mistakes, err := Mistakes(root)
	if err != nil {
		t.Fatal(err)
	}
	bin := programs.Build(t, "tandem-rdma")
	sys := filepath.Join(t.TempDir(), "sys")
	if err := os.CopyFS(sys, machines.Sys(t, "oci-mi300x-derived", 1)); err != nil {
		t.Fatal(err)
	}
	for _, m := range mistakes {
		t.Run(m.Pool, func(t *testing.T) {
			t.Parallel()
			judge(t, m, filepath.Join(bin, "tandem-rdma"), sys)
		})
	}
}

// judge runs the daemon with a wrong pool, until it ends or is ready.
func judge(t *testing.T, m Mistake, program, sys string) {
	t.Helper()
	dir := kubelettest.Dir(t)
	config, health := filepath.Join(dir, "config.json"), freeAddress(t)
	if err := os.WriteFile(config, []byte(m.Config()), 0o600); err != nil {
		t.Fatal(err)
	}
	kubelet := kubelettest.Start(t, dir)
	ctx, stop := context.WithTimeout(t.Context(), kubelettest.Limit)
	defer stop()
	daemon := exec.CommandContext(ctx, program, "--sysfs-root="+sys, "--kubelet-dir="+dir,
		"--run-dir="+filepath.Join(dir, "run"), "--devinfo-dir="+filepath.Join(dir, "devinfo"),
		"--config-file="+config, "--resource-prefix=nvidia.com", "--health-probe-bind-address="+health)
	daemon.Cancel = func() error { return daemon.Process.Signal(os.Interrupt) }
	var log bytes.Buffer
	daemon.Stderr = &log
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	ready, node := "none", "0"
	if m.Exit == "runs" {
		ready = strconv.Itoa(awaitReady(ctx, health))
		node = strconv.Itoa(devices(t, kubelet, m.Node))
		stop()
	}
	err := daemon.Wait()
	exit := strconv.Itoa(daemon.ProcessState.ExitCode())
	if m.Exit == "runs" && exit == "0" {
		exit = "runs"
	}
	if diff := cmp.Diff(m, Mistake{m.Pool, m.Helm, exit, m.Log, ready, node}); diff != "" {
		t.Errorf("%v (-the table +the program):\n%s", err, diff)
	}
	if !strings.Contains(strings.ReplaceAll(log.String(), `\"`, `"`), m.Log) {
		t.Errorf("the log has no %q:\n%s", m.Log, &log)
	}
}

// freeAddress returns an address on which nobody listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// awaitReady returns the status of /readyz once the daemon is ready, or at last.
func awaitReady(ctx context.Context, address string) (status int) {
	for status != http.StatusOK && ctx.Err() == nil {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/readyz", nil)
		if err != nil {
			return 0
		}
		if answer, err := http.DefaultClient.Do(request); err == nil {
			status = answer.StatusCode
			_ = answer.Body.Close()
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
	return status
}

// devices returns the number of devices that the daemon registered with the kubelet.
func devices(t *testing.T, kubelet *kubelettest.Kubelet, want string) int {
	t.Helper()
	if want != "0" {
		return len(kubelettest.Await(t, kubelettest.Await(t, kubelet.Plugins).Lists))
	}
	select {
	case plugin := <-kubelet.Plugins:
		return len(kubelettest.Await(t, plugin.Lists))
	default:
		return 0
	}
}
