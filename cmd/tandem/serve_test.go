// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
)

// Listening on an address other than loopback works with a warning; a signal ends the server successfully.
func TestServeOpen(t *testing.T) {
	for address, warned := range map[string]bool{"0.0.0.0:0": true, ":0": false} {
		stderr := serveOnce(t, "status", "--serve", address, "--run-dir", t.TempDir())
		if got := strings.HasPrefix(stderr, "WARNING: "); got != warned {
			t.Errorf("%s: standard error %q", address, stderr)
		}
	}
}

// serveOnce runs a command that serves until a signal, and returns its standard error.
func serveOnce(t *testing.T, args ...string) string {
	t.Helper()
	stdout, out := io.Pipe()
	var stderr bytes.Buffer
	code := make(chan int, 1)
	go func() {
		code <- cli.Execute(newRoot(), args, out, &stderr)
		out.Close()
	}()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "http://") {
		t.Fatalf("tandem %q: %q, %v, %s", args, line, err, &stderr)
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := <-code; got != cli.ExitOK {
		t.Errorf("tandem %q: exit code %d, %s", args, got, &stderr)
	}
	return stderr.String()
}
