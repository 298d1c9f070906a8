// SPDX-License-Identifier: Apache-2.0

// Package cluster is a Kubernetes cluster of one node: its control plane, its node with Tandem, its pods.
package cluster

import (
	"context"
	"io"
	"os/exec"
	"strings"
	"time"

	"github.com/tandem-k8s/tandem/test/vm/build"
	"github.com/tandem-k8s/tandem/test/vm/host"
)

// Cluster is the control plane. It runs on the host, many times faster than in an emulated machine, and
// survives machines. It has a network namespace of its own, with the guest's address on its loopback, so that
// the API server reaches the kubelet at the node's address.
type Cluster struct {
	cache    *build.Cache
	services []*host.Service
}

// component returns a command of the control plane, or kubectl.
func (k *Cluster) component(name string, args ...string) *exec.Cmd {
	return exec.Command(k.cache.Path("kubernetes", name), args...)
}

// Kubectl runs kubectl with a text for its standard input, and returns its output.
func (k *Cluster) Kubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	cmd := k.kubectl(args)
	cmd.Stdin = strings.NewReader(stdin)
	output, err := host.Run(ctx, cmd)
	return string(output), err
}

func (k *Cluster) kubectl(args []string) *exec.Cmd {
	return k.component("kubectl", append([]string{"--kubeconfig=" + k.cache.Path("run/admin")}, args...)...)
}

// await waits until an object meets conditions of "kubectl wait", one after the other.
func (k *Cluster) await(ctx context.Context, object string, conditions ...string) error {
	for _, condition := range conditions {
		if _, err := k.Kubectl(ctx, "", "wait", "--timeout=5m", object, "--for="+condition); err != nil {
			return err
		}
	}
	return nil
}

// retry repeats a kubectl command until it succeeds.
func (k *Cluster) retry(ctx context.Context, args ...string) error {
	ticker := time.NewTicker(500 * time.Millisecond)
	defer ticker.Stop()
	for {
		_, err := k.Kubectl(ctx, "", args...)
		if err == nil {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return err
		}
	}
}

// Follow passes kubectl's output to read as it is printed, and ends kubectl when read returns.
func (k *Cluster) Follow(ctx context.Context, read func(io.Reader) error, args ...string) error {
	cmd := k.kubectl(args)
	output, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	err = read(output)
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // the error is the kill
	return err
}
