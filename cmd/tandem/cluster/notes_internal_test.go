// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
)

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
