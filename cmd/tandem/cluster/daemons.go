// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/tandem-k8s/tandem/coordination/spelling"
)

// daemon is the pod of one of Tandem's daemons.
type daemon struct {
	Namespace, Pod, Node string
	Container            string            // of the daemon
	Program              string            // "tandem-gpu"; the container's name if the command does not tell
	Flags                map[string]string // of the daemon, without dashes: the folders of the node
	Trouble              string            // the reason why the daemon cannot answer; "" if the container runs
}

// byNode returns the daemons of pods with a node. The daemons of a node are sorted: running daemons first,
// then by name.
func byNode(pods []corev1.Pod) map[string][]daemon {
	nodes := map[string][]daemon{}
	for i := range pods {
		if d, ok := newDaemon(&pods[i]); ok {
			nodes[d.Node] = append(nodes[d.Node], d)
		}
	}
	for _, daemons := range nodes {
		slices.SortFunc(daemons, func(a, b daemon) int {
			return cmp.Or(compareBools(a.Trouble != "", b.Trouble != ""), cmp.Compare(a.Pod, b.Pod),
				cmp.Compare(a.Namespace, b.Namespace))
		})
	}
	return nodes
}

// compareBools puts false before true.
func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}

// newDaemon returns the daemon of a pod: in the container that starts a program of Tandem, else in the first
// container.
func newDaemon(pod *corev1.Pod) (d daemon, ok bool) {
	if pod.Spec.NodeName == "" || len(pod.Spec.Containers) == 0 {
		return daemon{}, false
	}
	at := max(0, slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool {
		return strings.HasPrefix(c.Name, "tandem-") ||
			len(c.Command) > 0 && strings.HasPrefix(c.Command[0], "tandem-")
	}))
	container := pod.Spec.Containers[at]
	d = daemon{
		Namespace: pod.Namespace, Pod: pod.Name, Node: pod.Spec.NodeName, Container: container.Name,
		Flags: map[string]string{}, Trouble: findTrouble(pod, container.Name), Program: container.Name,
	}
	if len(container.Command) > 0 {
		d.Program = path.Base(container.Command[0])
	}
	for _, arg := range slices.Concat(container.Command, container.Args) {
		name, value, isFlag := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		// Variables that the kubelet replaces are unknown here.
		if isFlag && strings.HasPrefix(arg, "-") && !strings.Contains(value, "$(") {
			d.Flags[name] = value
		}
	}
	return d, true
}

// findTrouble returns the reason why no program can start in a container, "" for a running container.
func findTrouble(pod *corev1.Pod, container string) string {
	for _, s := range pod.Status.ContainerStatuses {
		if s.Name != container {
			continue
		}
		switch {
		case s.State.Running != nil && pod.DeletionTimestamp == nil:
			return ""
		case s.State.Running != nil:
			return "the pod is being deleted"
		case s.State.Waiting != nil:
			return "its container waits: " + s.State.Waiting.Reason + lastMessage(s.LastTerminationState.Terminated,
				s.State.Waiting.Message)
		case s.State.Terminated != nil:
			return "its container has ended: " + s.State.Terminated.Reason + lastMessage(s.State.Terminated, "")
		}
	}
	if pod.Status.Message != "" {
		return fmt.Sprintf("the pod is %s (%s)", cmp.Or(pod.Status.Phase, corev1.PodPending), pod.Status.Message)
	}
	return fmt.Sprintf("the pod is %s", cmp.Or(pod.Status.Phase, corev1.PodPending))
}

// lastMessage returns the last line of an ended container in parentheses, else its exit code, else the
// kubelet's message; "" without any.
func lastMessage(ended *corev1.ContainerStateTerminated, kubelet string) string {
	switch {
	case ended != nil && strings.TrimSpace(ended.Message) != "":
		return " (" + lastLine(ended.Message) + ")"
	case ended != nil && ended.ExitCode != 0:
		return fmt.Sprintf(" (exit code %d; kubectl logs --previous has the reason)", ended.ExitCode)
	case kubelet != "":
		return " (" + lastLine(kubelet) + ")"
	default:
		return ""
	}
}

// preferWithFlag puts the daemons with a flag first: only tandem-rdma knows the configuration of VFs.
func preferWithFlag(daemons []daemon, flag string) []daemon {
	sorted := slices.Clone(daemons)
	slices.SortStableFunc(sorted, func(a, b daemon) int {
		return cmp.Or(compareBools(a.Trouble != "", b.Trouble != ""),
			compareBools(a.Flags[flag] == "", b.Flags[flag] == ""))
	})
	return sorted
}

// flagsFor returns some of the daemon's flags for a command, by the command's names.
func (d daemon) flagsFor(names map[string]string) (list []string) {
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if value, ok := d.Flags[name]; ok {
			list = append(list, "--"+names[name]+"="+value)
		}
	}
	return list
}

// findProgram returns the daemon of a program; running daemons come first.
func findProgram(daemons []daemon, program string) (daemon, bool) {
	at := slices.IndexFunc(daemons, func(d daemon) bool { return d.Program == program })
	if at < 0 {
		return daemon{}, false
	}
	return daemons[at], true
}

// executor starts a program in the pod of a daemon, and returns at the end of the program.
type executor func(ctx context.Context, in daemon, c command) error

// command is a program with its input and output.
type command struct {
	args           []string
	stdin          io.Reader // nil for none
	stdout, stderr io.Writer
}

// execRemotely starts programs by the subresource exec of pods: over a websocket or, if a proxy on the way
// takes none, over SPDY, as kubectl does.
func execRemotely(config *rest.Config, server rest.Interface) executor {
	return func(ctx context.Context, in daemon, c command) error {
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

// exitError is the exit code of tandem in a pod, and the last line of its standard error.
type exitError struct {
	Code int
	Said string
}

func (e *exitError) Error() string {
	if e.Said == "" {
		return fmt.Sprintf("tandem ended with exit code %d", e.Code)
	}
	return e.Said
}

// runTandem starts tandem in the pod of a daemon, for as long as the timeout allows, and returns the standard
// output. The error has the last line of the standard error.
func (e executor) runTandem(
	ctx context.Context, in daemon, timeout time.Duration, what command,
) ([]byte, error) {
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
			&exitError{code.Code, lastLine(said.String())})
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

// findDaemons returns the daemons by node: of a node, or with "" of all nodes.
func (c *cluster) findDaemons(ctx context.Context, node string) (map[string][]daemon, error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	release, err := c.findRelease(ctx)
	if err != nil {
		return nil, err
	}
	request := c.server.Get().Namespace(release.namespace).Resource("pods").
		Param("labelSelector", c.options.Selector)
	if node != "" {
		request.Param("fieldSelector", "spec.nodeName="+node)
	}
	var pods corev1.PodList
	if err := request.Do(ctx).Into(&pods); err != nil {
		return nil, fmt.Errorf("list pods of Tandem's daemons: %w", err)
	}
	nodes := byNode(slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return !release.hasMade(&pod) }))
	if len(nodes) == 0 {
		place, proposal := "", ""
		if node != "" {
			all, _ := c.findDaemons(ctx, "") // without an answer there is no proposal
			place, proposal = " on node "+node, spelling.Question(node, slices.Sorted(maps.Keys(all)))
		}
		return nil, fmt.Errorf(
			"find Tandem's daemons: no DaemonSet of namespace %s has a pod%s that is labelled %s%s",
			release.namespace, place, c.options.Selector, proposal)
	}
	return nodes, nil
}
