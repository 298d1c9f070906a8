// SPDX-License-Identifier: Apache-2.0

package playground

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/test/kubelettest"
	"github.com/tandem-k8s/tandem/test/playground/kubelet"
)

// TestRestartOfDeadDaemon: a daemon that has ended with an error can be started again.
func TestRestartOfDeadDaemon(t *testing.T) {
	t.Parallel()
	p := &Playground{}
	d := &daemon{name: "x", log: filepath.Join(t.TempDir(), "x.log")}
	d.launch = program("/bin/sh", "-c", "echo bad; exit 3")
	if err := d.start(); err != nil {
		t.Fatal(err)
	}
	<-d.exited
	if err := d.ended(); err == nil || !strings.Contains(err.Error(), "exit status 3: bad") {
		t.Errorf("the end is %v", err)
	}
	var err error
	if p.kubelet, err = kubelet.Start(kubelettest.Dir(t), model.Rule{}); err != nil {
		t.Fatal(err)
	}
	defer p.kubelet.Stop()
	d.launch = inProcess(func(ctx context.Context, _ *slog.Logger) error { <-ctx.Done(); return ctx.Err() })
	if err := p.again(t.Context(), d, "x.y/gpu"); err != nil {
		t.Fatalf("start it again: %v", err)
	}
	if err := errors.Join(d.ended(), d.stop()); err != nil {
		t.Error(err)
	}
}

// TestDeadDaemonFailsScripts: a command that has to fail has not failed for the reason that a script expects
// if a daemon has died.
func TestDeadDaemonFailsScripts(t *testing.T) {
	t.Parallel()
	d := &daemon{name: "x", log: filepath.Join(t.TempDir(), "x.log"), launch: program("/bin/sh", "-c", "exit 3")}
	if err := d.start(); err != nil {
		t.Fatal(err)
	}
	<-d.exited
	p := &Playground{gpu: d, rdma: d}
	prompt := Prompt{In: strings.NewReader("! run a gpu=9\r\n"), Out: io.Discard, Errors: io.Discard}
	if err := prompt.Run(t.Context(), p); err == nil || !strings.Contains(err.Error(), "line 1: x has ended") {
		t.Errorf("the script ends with %v", err)
	}
}

// TestAnswersAlone: answers without the coordinator are counted by the lines of the plugins' log.
func TestAnswersAlone(t *testing.T) {
	t.Parallel()
	d := &daemon{log: filepath.Join(t.TempDir(), "x.log")}
	if n := d.answersAlone(); n != 0 {
		t.Errorf("%d answers before the start", n)
	}
	file, err := os.Create(d.log)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	dir, sys := kubelettest.Dir(t), t.TempDir()
	if err := os.MkdirAll(filepath.Join(sys, "bus/pci/devices"), 0o750); err != nil {
		t.Fatal(err)
	}
	node, err := coordination.New(coordination.Config{ // nobody serves
		RunDir: filepath.Join(dir, "run"), SysRoot: sys, KubeletDir: dir,
		Log: slog.New(slog.NewTextHandler(file, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	member := node.Member("x.y/vf", device.VF)
	question := &api.PreferRequest{Resource: "x.y/vf", Available: []string{"a", "b"}, Size: 1}
	member.Alone(question, errors.ErrUnsupported)
	if _, _, err := member.Allocated(t.Context(), member.StartAllocate(t.Context(), []string{"a"})); err != nil {
		t.Error(err)
	}
	if n := d.answersAlone(); n != 2 {
		t.Errorf("%d answers, want 2", n)
	}
}

// TestStubbornDaemon: a daemon that ignores SIGTERM is killed, so that nothing writes into the folder any
// more.
func TestStubbornDaemon(t *testing.T) {
	t.Parallel()
	d := &daemon{name: "x", log: filepath.Join(t.TempDir(), "x.log")}
	ready := filepath.Join(t.TempDir(), "ready")
	if err := syscall.Mkfifo(ready, 0o600); err != nil {
		t.Fatal(err)
	}
	launch := program("/bin/sh", "-c", "trap '' TERM; echo >"+ready+"; read x <"+ready)
	d.launch = func(log *os.File) (*process, error) {
		p, err := launch(log)
		if err == nil {
			p.grace = 50 * time.Millisecond
		}
		return p, err
	}
	if err := d.start(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.ReadFile(ready); err != nil { // the signal is ignored from now on
		t.Fatal(err)
	}
	if err := d.stop(); err == nil ||
		!strings.Contains(err.Error(), "stop x: killed, because it still ran after 50ms") {
		t.Errorf("the end is %v", err)
	}
	if err := d.ended(); err == nil || !strings.Contains(err.Error(), "signal: killed") {
		t.Errorf("the process ended with %v", err)
	}
}
