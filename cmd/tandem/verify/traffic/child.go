// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Limits of a program.
const (
	outputLimit = 64 << 10
	grace       = 2 * time.Second // between SIGTERM and SIGKILL
)

// head keeps the first outputLimit bytes.
type head struct{ strings.Builder }

// Write implements io.Writer, and never fails.
func (h *head) Write(text []byte) (int, error) {
	room := max(outputLimit-h.Len(), 0)
	h.Builder.Write(text[:min(room, len(text))])
	return len(text), nil
}

// run runs the program and returns its output, standard error last. The end of ctx ends the program.
func (p program) run(ctx context.Context, environment []string, arguments ...string) (string, error) {
	var stdout, stderr head
	cmd := exec.CommandContext(ctx, p.path, arguments...)
	cmd.Env, cmd.Stdout, cmd.Stderr = environment, &stdout, &stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = grace
	err := cmd.Run()
	output := stdout.String() + "\n" + stderr.String()
	switch {
	case ctx.Err() != nil:
		err = fmt.Errorf("run %s: %w", p.name, context.Cause(ctx))
	case err != nil:
		err = fmt.Errorf("run %s %s: %w: %s", p.name, strings.Join(arguments, " "), err, reason(output))
	}
	return output, err
}
