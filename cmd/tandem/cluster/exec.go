// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"
)

// unknownFlag is in the error of daemons of an earlier release.
const unknownFlag = "unknown flag"

// executor starts a program in the pod of a daemon, and returns at the end of the program.
type executor func(ctx context.Context, in Daemon, c command) error

// command is a program with its input and output.
type command struct {
	args           []string
	stdin          io.Reader // nil for none
	stdout, stderr io.Writer
}

// remote starts programs by the subresource exec of pods: over a websocket or, if a proxy on the way takes
// none, over SPDY, as kubectl does.
func remote(config *rest.Config, server rest.Interface) executor {
	return func(ctx context.Context, in Daemon, c command) error {
		request := server.Post().Namespace(in.Namespace).Resource("pods").Name(in.Pod).SubResource("exec").
			Param("container", in.Container).Param("stdout", "true").Param("stderr", "true")
		for _, arg := range c.args {
			request.Param("command", arg)
		}
		if c.stdin != nil {
			request.Param("stdin", "true")
		}
		overSPDY, err := remotecommand.NewSPDYExecutor(config, "POST", request.URL())
		if err != nil {
			return err
		}
		overWebSocket, err := remotecommand.NewWebSocketExecutor(config, "GET", request.URL().String())
		if err != nil {
			return err
		}
		either, err := remotecommand.NewFallbackExecutor(overWebSocket, overSPDY, func(err error) bool {
			return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
		})
		if err != nil {
			return err
		}
		return either.StreamWithContext(ctx, remotecommand.StreamOptions{
			Stdin: c.stdin, Stdout: c.stdout, Stderr: c.stderr,
		})
	}
}

// ExitError is the exit code of tandem in a pod, and the last line of its standard error.
type ExitError struct {
	Code int
	Said string
}

func (e *ExitError) Error() string {
	if e.Said == "" {
		return fmt.Sprintf("tandem ended with exit code %d", e.Code)
	}
	return e.Said
}

// run starts tandem in the pod of a daemon, for as long as the timeout allows, and returns the standard
// output. The error has the last line of the standard error.
func (e executor) run(ctx context.Context, in Daemon, timeout time.Duration, what command) ([]byte, error) {
	ctx, end := context.WithTimeout(ctx, timeout)
	defer end()
	ctx, tooLong := context.WithCancelCause(ctx)
	defer tooLong(nil)
	printed := bounded{bound: mostPrinted, excess: tooLong}
	said := bounded{bound: mostProblems, excess: tooLong}
	what.stdout, what.stderr = &printed, &said
	err := e(ctx, in, what)
	var code utilexec.CodeExitError
	switch cause := context.Cause(ctx); {
	case err == nil && cause == nil:
		return printed.Bytes(), nil
	case errors.As(err, &code) && cause == nil:
		return printed.Bytes(), fmt.Errorf("%s/%s: %w", in.Namespace, in.Pod,
			&ExitError{code.Code, lastLine(said.String())})
	case errors.Is(cause, context.DeadlineExceeded):
		return nil, fmt.Errorf("%s/%s: no answer after %s", in.Namespace, in.Pod, timeout)
	case cause != nil:
		return nil, fmt.Errorf("%s/%s: %w", in.Namespace, in.Pod, cause)
	default:
		return nil, fmt.Errorf("%s/%s: %s", in.Namespace, in.Pod, requestText.ReplaceAllString(err.Error(), ""))
	}
}

// requestText matches the request as errors of Go's client quote it, with the whole command line in it.
var requestText = regexp.MustCompile(`(Get|Post) "[^"]*": `)

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// The most bytes that a command in a daemon's pod may print. The status of a node with 1,024 VFs takes a
// third of a MiB.
const (
	mostPrinted  = 4 << 20
	mostProblems = 64 << 10
)

// bounded keeps written bytes, up to a bound.
type bounded struct {
	bytes.Buffer
	bound  int
	excess func(error) // called with the first write beyond the bound
}

// Write implements io.Writer.
func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > b.bound {
		err := fmt.Errorf("the answer is longer than %d KiB", b.bound>>10)
		b.excess(err)
		return 0, err
	}
	return b.Buffer.Write(p)
}
