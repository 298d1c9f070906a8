// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"testing"
)

// child runs this test binary in a role, with a run folder. It ends when its standard input is closed, at the
// latest with the test.
func child(t *testing.T, role, runDir string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), "TANDEM_TEST_ROLE="+role, "TANDEM_TEST_RUN_DIR="+runDir,
		"TANDEM_TEST_SYS="+sysRoot(t), "TANDEM_TEST_KUBELET="+shortDir(t))
	cmd.Stderr = os.Stderr
	return cmd
}

// serveForTest is a plugin without devices that serves until its standard input ends.
func serveForTest() int {
	node, err := New(Config{
		RunDir: os.Getenv("TANDEM_TEST_RUN_DIR"), SysRoot: os.Getenv("TANDEM_TEST_SYS"),
		KubeletDir: os.Getenv("TANDEM_TEST_KUBELET"),
		Log:        slog.New(slog.DiscardHandler),
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	if err := node.Run(ctx); err != nil {
		return 1
	}
	return 0
}

// floodForTest misbehaves in every way until its standard input ends.
func floodForTest() int {
	for i := range 4 {
		go func() {
			for {
				misbehave(context.Background(), os.Getenv("TANDEM_TEST_RUN_DIR"), i)
			}
		}()
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// enterModeForTest enters a mode, says so, and waits for the end of its standard input.
func enterModeForTest() int {
	_, err := enterMode(DRA, os.Getenv("TANDEM_TEST_RUN_DIR"))
	fmt.Fprintln(os.Stdout, "entered", err)
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}
