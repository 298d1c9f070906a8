// SPDX-License-Identifier: Apache-2.0

package play

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/cmd/tandem/play/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
	"github.com/tandem-k8s/tandem/test/kubelettest"
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
	if p.kubelet, err = kubelet.Start(kubelettest.Dir(t), hints.Rule{}); err != nil {
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
