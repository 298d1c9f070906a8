// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"
)

// remote starts programs by the subresource exec of pods: over a websocket and, where something on the way
// knows none, over SPDY, as kubectl does.
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

// ExitError says with which code tandem ended in a pod, and what it said last.
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

// run starts tandem in the pod of a daemon, for as long as the timeout allows, and returns what it prints.
// What it writes to its standard error is in the error.
func (c *Cluster) run(ctx context.Context, in Daemon, timeout time.Duration, what command) ([]byte, error) {
	ctx, end := context.WithTimeout(ctx, timeout)
	defer end()
	ctx, tooLong := context.WithCancelCause(ctx)
	defer tooLong(nil)
	printed := bounded{bound: mostPrinted, excess: tooLong}
	said := bounded{bound: mostProblems, excess: tooLong}
	what.stdout, what.stderr = &printed, &said
	err := c.exec(ctx, in, what)
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
		return nil, fmt.Errorf("%s/%s: %s", in.Namespace, in.Pod, asked.ReplaceAllString(err.Error(), ""))
	}
}

// asked is the request as errors of Go's client quote it, with the whole command line in it.
var asked = regexp.MustCompile(`(Get|Post) "[^"]*": `)

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
