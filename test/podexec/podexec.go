// SPDX-License-Identifier: Apache-2.0

// Package podexec starts programs in pods like API servers and kubelets: over websockets for clients of an
// API server, else over SPDY with the kubelet's own code.
package podexec

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/streaming/pkg/httpstream/wsstream"
	"k8s.io/utils/exec"
)

// Program runs in the container of a pod, and returns its exit code.
type Program func(ctx context.Context, pod string, args []string, stdin io.Reader, stdout, stderr io.Writer) int

// patience is how long the client may take to ask for its streams.
const patience = time.Minute

// Serve runs the program of a request for the subresource exec of a pod, from a client to an API server or
// from an API server to a kubelet.
func Serve(w http.ResponseWriter, r *http.Request, pod string, program Program) {
	query := r.URL.Query()
	asked := func(server, kubelet string) bool {
		return query.Get(server) == "true" || query.Get(kubelet) == "1"
	}
	options := &remotecommand.Options{
		Stdin: asked("stdin", "input"), Stdout: asked("stdout", "output"), Stderr: asked("stderr", "error"),
	}
	if wsstream.IsWebSocketRequestWithStreamCloseProtocol(r) {
		serveWebSocket(w, r, pod, program, options.Stdin)
		return
	}
	remotecommand.ServeExec(w, r, program, pod, "", query.Get("container"), query["command"], options,
		patience, patience, remotecommand.SupportedStreamingProtocols)
}

// ExecInContainer implements remotecommand.Executor.
func (p Program) ExecInContainer(
	ctx context.Context, pod, _, _ string, args []string, stdin io.Reader, stdout, stderr io.WriteCloser, _ bool,
	_ <-chan remotecommand.TerminalSize, _ time.Duration,
) error {
	if code := p(ctx, pod, args, stdin, stdout, stderr); code != 0 {
		return exec.CodeExitError{Err: fmt.Errorf("exit code %d", code), Code: code}
	}
	return nil
}

// serveWebSocket speaks version 5 of the protocol: standard input, output and error, the result of the
// program, and the size of a terminal, which is unused.
func serveWebSocket(w http.ResponseWriter, r *http.Request, pod string, program Program, stdin bool) {
	channels := []wsstream.ChannelType{
		wsstream.IgnoreChannel, wsstream.WriteChannel, wsstream.WriteChannel, wsstream.WriteChannel,
		wsstream.ReadChannel,
	}
	if stdin {
		channels[0] = wsstream.ReadChannel
	}
	conn := wsstream.NewConn(map[string]wsstream.ChannelProtocolConfig{
		"v5." + wsstream.ChannelWebSocketProtocol: {Binary: true, Channels: channels},
	})
	_, streams, err := conn.Open(w, r)
	if err != nil {
		return // the client has been told
	}
	defer conn.Close()
	code := program(r.Context(), pod, r.URL.Query()["command"], streams[0], streams[1], streams[2])
	ended := metav1.Status{Status: metav1.StatusSuccess}
	if code != 0 {
		ended = metav1.Status{
			Status: metav1.StatusFailure, Reason: remotecommand.NonZeroExitCodeReason,
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{
				{Type: remotecommand.ExitCodeCauseType, Message: fmt.Sprint(code)},
			}},
		}
	}
	_ = json.NewEncoder(streams[3]).Encode(ended) // the client may have gone
}
