// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"

	corev1 "k8s.io/api/core/v1"
)

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
