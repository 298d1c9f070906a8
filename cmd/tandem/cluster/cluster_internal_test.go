// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilexec "k8s.io/client-go/util/exec"

	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
)

// answers is an executor whose daemons do, by the names of their pods, what they are told.
func answers(how map[string]func(ctx context.Context, c command) error) executor {
	return func(ctx context.Context, in daemon, c command) error { return how[in.Pod](ctx, c) }
}

func says(text string) func(context.Context, command) error {
	return func(_ context.Context, c command) error {
		fmt.Fprint(c.stdout, text)
		return nil
	}
}

func fails(code int, text string) func(context.Context, command) error {
	return func(_ context.Context, c command) error {
		fmt.Fprintf(c.stderr, "a note\n%s\n", text)
		return utilexec.CodeExitError{Err: errors.New("it ended"), Code: code}
	}
}

func hangs(ctx context.Context, _ command) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestOneThatHangs: a daemon that hangs takes its share of the time, and the other one of the node answers.
func TestOneThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{options: options{Timeout: 10 * time.Second}, exec: answers(
			map[string]func(context.Context, command) error{"a": hangs, "b": says(`{"mode":"dra"}`), "c": hangs},
		)}
		begin := time.Now()
		n := c.askStatus(t.Context(), "node", []daemon{{Namespace: "n", Pod: "a"}, {Namespace: "n", Pod: "b"}})
		if n.Status == nil || n.Status.Mode != "dra" || n.Daemon != "n/b" || time.Since(begin) != 5*time.Second {
			t.Errorf("after %s: %+v", time.Since(begin), n)
		}
		begin = time.Now()
		n = c.askStatus(t.Context(), "node", []daemon{
			{Namespace: "n", Pod: "c"}, {Namespace: "n", Pod: "d", Trouble: "it waits"},
		})
		want := "n/c: no answer after 10s; n/d: it waits"
		if n.Error != want || time.Since(begin) != 10*time.Second {
			t.Errorf("after %s: %q, want %q", time.Since(begin), n.Error, want)
		}
	})
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	c := &cluster{options: options{Timeout: time.Minute}, exec: answers(
		map[string]func(context.Context, command) error{
			"old":  fails(126, "tandem: not found"),
			"text": says("no JSON"),
			"mute": func(context.Context, command) error {
				return utilexec.CodeExitError{Err: errors.New(""), Code: 9}
			},
			"long": func(ctx context.Context, c command) error {
				for ctx.Err() == nil {
					_, _ = c.stdout.Write(make([]byte, 1<<20))
				}
				return ctx.Err()
			},
			"chatty": func(ctx context.Context, c command) error {
				_, err := c.stderr.Write(make([]byte, 1<<20))
				return err
			},
			"lost": func(context.Context, command) error { return errors.New(`Post "https://a/exec?command=b": refused`) },
		},
	)}
	for pod, want := range map[string]string{
		"old": "n/old: tandem: not found", "text": "n/text: read the answer: invalid character",
		"mute": "n/mute: tandem ended with exit code 9", "lost": "n/lost: refused",
		"long":   "n/long: the answer is longer than 4096 KiB",
		"chatty": "n/chatty: the answer is longer than 64 KiB",
	} {
		n := c.askStatus(t.Context(), "node", []daemon{{Namespace: "n", Pod: pod}})
		if n.Status != nil || !strings.HasPrefix(n.Error, want) {
			t.Errorf("%s: %q, want %q", pod, n.Error, want)
		}
	}
}

// TestByNode: which pods count, in which order they are asked, and what is read of them.
func TestByNode(t *testing.T) {
	t.Parallel()
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	pod := func(name, node string, state corev1.ContainerState) corev1.Pod {
		return corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name},
			Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c"}}},
			Status:     corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "c", State: state}}},
		}
	}
	leaving := pod("a-leaving", "one", running)
	leaving.DeletionTimestamp = &metav1.Time{}
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Error"}}
	flagged := pod("flagged", "two", running)
	flagged.Spec.Containers = []corev1.Container{
		{Name: "proxy"}, {Name: "c", Command: []string{"tandem-rdma", "--run-dir=/a"}, Args: []string{
			"--config-file=/etc/$(NODE_NAME).json", "-kubelet-dir=/b", "--use-cdi", "x=y",
		}},
	}
	nodes := byNode([]corev1.Pod{
		leaving, pod("c", "one", running), pod("b", "one", running), pod("d-ended", "one", ended),
		pod("nowhere", "", running), flagged, {Spec: corev1.PodSpec{NodeName: "one"}},
	})
	var got []string
	for _, d := range nodes["one"] {
		got = append(got, d.Pod+" "+d.Trouble)
	}
	want := "b |c |a-leaving the pod is being deleted|d-ended its container has ended: Error"
	if strings.Join(got, "|") != want || len(nodes) != 2 {
		t.Errorf("%d nodes, %q, want %q", len(nodes), got, want)
	}
	two := nodes["two"][0]
	if fmt.Sprint(two.Container, " ", two.Flags) != "c map[kubelet-dir:/b run-dir:/a]" {
		t.Errorf("read %+v", two)
	}
	if got := two.flagsFor(ofDoctor); fmt.Sprint(got) != "[--kubelet-dir=/b --run-dir=/a]" {
		t.Errorf("passes on %v", got)
	}
}

// TestSameAnswers: daemons of a node with the same error are quoted once.
func TestSameAnswers(t *testing.T) {
	t.Parallel()
	c := &cluster{options: options{Timeout: time.Minute}, exec: answers(
		map[string]func(context.Context, command) error{
			"a": fails(1, "tandem: unknown pod"), "b": fails(1, "tandem: unknown pod"), "c": fails(1, "tandem: other"),
		},
	)}
	n := c.askStatus(t.Context(), "node", []daemon{{Pod: "a"}, {Pod: "b"}, {Pod: "c"}})
	if want := "/a: tandem: unknown pod; /c: tandem: other"; n.Error != want {
		t.Errorf("%q, want %q", n.Error, want)
	}
}

// TestWithPods: notes about absent devices have the state of the daemons' pods, and name a wrong vendor.
func TestWithPods(t *testing.T) {
	t.Parallel()
	const (
		devices = "8 GPUs of NVIDIA's on PCI, and "
		gpus    = devices + "no plugin offers them: tandem-gpu does not run here, or waits for NVML: remedy"
		vfs     = "no plugin offers VFs: tandem-rdma does not run here"
	)
	newDaemon := func(program, trouble, vendor string) daemon {
		return daemon{
			Namespace: "n", Pod: program + "-x", Program: program, Trouble: trouble,
			Flags: map[string]string{"vendor": vendor},
		}
	}
	for name, c := range map[string]struct {
		notes   []string
		daemons []daemon
		want    []string
	}{
		"no pods": {[]string{gpus, vfs, "other"}, nil, []string{
			devices + "no plugin offers them: no pod of tandem-gpu is on this node",
			"no plugin offers VFs: no pod of tandem-rdma is on this node", "other",
		}},
		"crashing": {[]string{gpus, vfs}, []daemon{
			newDaemon("tandem-gpu", "its container waits: CrashLoopBackOff (no)", ""),
			newDaemon("tandem-rdma", "", ""),
		}, []string{
			devices + "no plugin offers them: n/tandem-gpu-x: its container waits: CrashLoopBackOff (no)",
			"no plugin offers VFs: the configuration of tandem-rdma (config.json) selects no VF of this node",
		}},
		"waiting": {[]string{gpus}, []daemon{newDaemon("tandem-gpu", "", "auto")}, []string{
			devices + "no plugin offers them: tandem-gpu waits for NVML: remedy",
		}},
		"other vendor": {[]string{gpus}, []daemon{newDaemon("tandem-gpu", "", "amd")}, []string{
			devices + "no plugin offers them: gpu.vendor is amd: set gpu.vendor=nvidia or auto",
		}},
		"without notes": {nil, []daemon{newDaemon("tandem-rdma", "the pod is Pending", "")}, []string{
			"n/tandem-rdma-x: the pod is Pending",
		}},
	} {
		if got := withPods(c.notes, c.daemons); !slices.Equal(got, c.want) {
			t.Errorf("%s:\n got %s\nwant %s", name, strings.Join(got, "; "), strings.Join(c.want, "; "))
		}
	}
}

// TestNotesOfHealth: the notes of a node have its failed and degraded devices, with the reasons.
func TestNotesOfHealth(t *testing.T) {
	t.Parallel()
	got := listNotes(&coordinator.Status{Resources: []coordinator.Resource{{
		Name: "tandem.dev/rdma_vf", Connected: true, Devices: []coordinator.Device{
			{ID: "0000:0c:00.1", Health: "failed", Reason: "no carrier"}, {ID: "0000:2a:00.1"},
		},
	}}}).String()
	if want := "1 device of tandem.dev/rdma_vf failed: no carrier: 0000:0c:00.1"; !strings.Contains(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestTrouble: a container that does not run has its last message, or the exit code.
func TestTrouble(t *testing.T) {
	t.Parallel()
	loop := corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off"},
	}
	for name, c := range map[string]struct {
		status corev1.ContainerStatus
		want   string
	}{
		"message": {corev1.ContainerStatus{State: loop, LastTerminationState: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: "log\nread config.json\n"},
		}}, "its container waits: CrashLoopBackOff (read config.json)"},
		"exit code": {corev1.ContainerStatus{State: loop, LastTerminationState: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: 2},
		}}, "its container waits: CrashLoopBackOff (exit code 2; kubectl logs --previous has the reason)"},
		"kubelet": {corev1.ContainerStatus{State: loop}, "its container waits: CrashLoopBackOff (back-off)"},
	} {
		pod := corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{c.status}}}
		if got := findTrouble(&pod, ""); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
