// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Outcome is the result of a pod.
type Outcome struct {
	Reason     string // reason of the refusal; "" if admitted
	Message    string
	Containers []View // as the asks, in their order
	Took       time.Duration
}

// Create creates a pod and waits until all its containers have reported, or it has failed.
func (n *Node) Create(ctx context.Context, p Pod) (*Outcome, error) {
	start := time.Now()
	if err := n.Submit(ctx, p); err != nil {
		return nil, err
	}
	return n.See(ctx, p, start)
}

// Submit creates a pod.
func (n *Node) Submit(ctx context.Context, p Pod) error {
	manifest, err := json.Marshal(p.manifest(n.Shape.Resource))
	if err != nil {
		return err
	}
	uid, err := n.Kubectl(ctx, string(manifest), "create", "-f", "-", "-o", "jsonpath={.metadata.uid}")
	if err == nil {
		n.recording.arrives(p, uid)
	}
	return err
}

// Decided waits for the kubelet's verdict on a pod and returns it.
func (k *Cluster) Decided(ctx context.Context, name string) (admitted bool, err error) {
	pod, err := k.WatchPod(ctx, name, func(p *corev1.Pod) bool { return p.Status.StartTime != nil })
	return err == nil && pod.Status.Phase != corev1.PodFailed, err
}

// See waits until all containers of a pod created at the time made have reported, or it has failed.
func (n *Node) See(ctx context.Context, p Pod, made time.Time) (*Outcome, error) {
	o, err := n.see(ctx, p, made)
	if err == nil {
		n.recording.seen(p.Name, o)
	}
	return o, err
}

func (k *Cluster) see(ctx context.Context, p Pod, made time.Time) (*Outcome, error) {
	pod, err := k.WatchPod(ctx, p.Name, func(p *corev1.Pod) bool {
		return p.Status.Phase == corev1.PodRunning || p.Status.Phase == corev1.PodFailed
	})
	if err != nil {
		return nil, err
	}
	o := &Outcome{Took: time.Since(made)}
	if pod.Status.Phase == corev1.PodFailed {
		o.Reason, o.Message = pod.Status.Reason, pod.Status.Message
		if o.Reason == "" {
			return nil, fmt.Errorf("pod %s failed after it was admitted: %s", p.Name, pod.Status.Message)
		}
		return o, nil
	}
	for i := range p.Asks {
		seen, err := k.look(ctx, p.Name, containerName(i))
		if err != nil {
			return nil, err
		}
		o.Containers = append(o.Containers, *seen)
	}
	return o, nil
}

// SeeAgain waits until all containers of a pod have been started again, and have had their look.
func (k *Cluster) SeeAgain(ctx context.Context, name string) (*Outcome, error) {
	pod, err := k.WatchPod(ctx, name, func(p *corev1.Pod) bool {
		if p.Status.Phase == corev1.PodFailed {
			return true
		}
		for _, c := range p.Status.ContainerStatuses {
			if c.RestartCount == 0 || c.State.Running == nil {
				return false
			}
		}
		return p.Status.Phase == corev1.PodRunning
	})
	if err != nil {
		return nil, err
	}
	o := &Outcome{Reason: pod.Status.Reason, Message: pod.Status.Message}
	if pod.Status.Phase == corev1.PodFailed {
		return o, nil
	}
	for _, c := range pod.Spec.Containers {
		seen, err := k.look(ctx, name, c.Name)
		if err != nil {
			return nil, err
		}
		o.Containers = append(o.Containers, *seen)
	}
	return o, nil
}

// Remove deletes pods and waits until they are gone.
func (n *Node) Remove(ctx context.Context, names ...string) error {
	if len(names) == 0 {
		return nil
	}
	n.recording.ending(names...)
	_, err := n.Kubectl(ctx, "",
		append([]string{"delete", "pod", "--ignore-not-found", "--timeout=5m"}, names...)...)
	if err == nil {
		n.recording.gone(names...)
	}
	return err
}

// Reboot restarts the machine and waits until it is ready.
func (n *Node) Reboot(ctx context.Context) error {
	n.recording.rebooting()
	return n.VM.Reboot(ctx)
}

// WatchPod watches a pod until wanted returns true.
func (k *Cluster) WatchPod(
	ctx context.Context, name string, wanted func(*corev1.Pod) bool,
) (*corev1.Pod, error) {
	var pod corev1.Pod
	err := k.Follow(ctx, func(output io.Reader) error {
		for decoder := json.NewDecoder(output); ; {
			pod = corev1.Pod{}
			if err := decoder.Decode(&pod); err != nil || wanted(&pod) {
				return err
			}
		}
	}, "get", "pod", name, "--watch", "-o", "json")
	if err != nil {
		return nil, fmt.Errorf("wait for pod %s, which is %s: %w", name, pod.Status.Phase, err)
	}
	return &pod, nil
}

// State returns a pod's phase and the number of restarts of its container.
func (k *Cluster) State(ctx context.Context, name string) (string, error) {
	pod, err := k.WatchPod(ctx, name, func(*corev1.Pod) bool { return true })
	if err != nil {
		return "", err
	}
	restarts := int32(0)
	for _, status := range pod.Status.ContainerStatuses {
		restarts += status.RestartCount
	}
	state := fmt.Sprintf("%s, started again %d times", pod.Status.Phase, restarts)
	if pod.Status.Reason != "" {
		state += " (" + pod.Status.Reason + ": " + strings.TrimSpace(pod.Status.Message) + ")"
	}
	return state, nil
}

// View is a container's view of its devices.
type View struct {
	GPUs, VFs []string // paths below /sys
	Verified  bool
	Verdict   string // the last line of tandem verify
}

// look reads a container's log until its last line.
func (k *Cluster) look(ctx context.Context, pod, container string) (*View, error) {
	v := &View{}
	err := k.Follow(ctx, func(output io.Reader) error {
		for lines := bufio.NewScanner(output); lines.Scan(); {
			if v.read(lines.Text()) {
				return nil
			}
		}
		cut := fmt.Errorf("container %s of pod %s did not finish its look", container, pod)
		return errors.Join(cut, ctx.Err())
	}, "logs", "--follow", pod, "--container", container)
	if err != nil {
		return nil, err
	}
	return v, nil
}

// read parses one line and reports whether it was the last.
func (v *View) read(line string) bool {
	word, rest, _ := strings.Cut(line, " ")
	_, path, _ := strings.Cut(rest, " ")
	switch word {
	case "gpu":
		v.GPUs = append(v.GPUs, path)
	case "vf":
		v.VFs = append(v.VFs, path)
	case "verify":
		v.Verified = rest == "0"
		return true
	default:
		if line != "" {
			v.Verdict = line
		}
	}
	return false
}

// Pairs counts the possible pairs on one switch of the container's devices by their paths, independently of
// Tandem's distances.
func (v *View) Pairs() int {
	gpus := map[string]int{}
	for _, path := range v.GPUs {
		gpus[switchOf(path)]++
	}
	pairs := 0
	for _, path := range v.VFs {
		if s := switchOf(path); gpus[s] > 0 {
			gpus[s]--
			pairs++
		}
	}
	return pairs
}

// switchOf returns the part of a device's path up to its switch: host bridge, root port, upstream port.
func switchOf(path string) string {
	elements := strings.Split(path, "/") // "", sys, devices, pci0000:20, 0000:20:00.0, 0000:21:00.0, …
	return strings.Join(elements[:min(6, len(elements))], "/")
}

// ExecJSON runs a program in a pod's first container, reads the program's JSON into result, and returns the
// exit code.
func (k *Cluster) ExecJSON(ctx context.Context, pod string, result any, command ...string) (int, error) {
	output, err := k.Kubectl(ctx, "", append([]string{"exec", pod, "--container=c0", "--"}, command...)...)
	code := 0
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		code = exit.ExitCode() // kubectl's is the program's
	} else if err != nil {
		return 0, err
	}
	if invalid := json.Unmarshal([]byte(output), result); invalid != nil {
		return code, errors.Join(fmt.Errorf("read the output of %q in pod %s: %w", command, pod, invalid), err)
	}
	return code, nil
}

// PodIP returns the address of a running pod.
func (k *Cluster) PodIP(ctx context.Context, name string) (string, error) {
	pod, err := k.WatchPod(ctx, name, func(p *corev1.Pod) bool { return p.Status.PodIP != "" })
	if err != nil {
		return "", err
	}
	return pod.Status.PodIP, nil
}
