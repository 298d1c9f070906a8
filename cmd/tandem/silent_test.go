// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
)

// TestSilentNode: kubectl tandem ends with an error, if a node answers nothing.
func TestSilentNode(t *testing.T) {
	t.Parallel()
	s := newPodServer(t)
	s.add("kube-system/tandem-gpu-a", "tandem-gpu", "gpu-1",
		func(context.Context, string, []string, io.Reader, io.Writer, io.Writer) int { return cli.ExitOK })
	s.add("team/train-0", "train", "gpu-1", nil)
	kubeconfig := s.start()
	for _, args := range [][]string{
		{"explain", "team/train-0"}, {"explain", "team/train-0", "-o", "json"},
		{"doctor", "gpu-1"}, {"doctor", "gpu-1", "-o", "json"},
	} {
		code, stdout, stderr := plugin(kubeconfig, args...)
		if code != cli.ExitError || !strings.Contains(stderr, "the answer is empty") {
			t.Errorf("%v: code %d, output %q, %q", args, code, stdout, stderr)
		}
	}
}
