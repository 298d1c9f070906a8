// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/cmd/internal/daemon"
	"github.com/tandem-k8s/tandem/plugins/gpu/amd"
	"github.com/tandem-k8s/tandem/test/kubelettest"
	"github.com/tandem-k8s/tandem/test/podsapi"
)

// TestPublish: the daemon publishes its announcements, here labels of a node without VFs, and the enforcement
// of annotations once the kubelet lists its pods.
func TestPublish(t *testing.T) {
	node := layout(t, "oci-mi300x-derived")
	kubelettest.Start(t, node.KubeletDir)
	features := t.TempDir()
	var flags daemon.Flags
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.Register(set)
	if err := set.Parse([]string{
		"--sysfs-root=" + node.SysfsRoot, "--dev-root=" + node.DevRoot, "--kubelet-dir=" + node.KubeletDir,
		"--run-dir=" + node.RunDir, "--publish=nfd-file", "--nfd-features-dir=" + features,
	}); err != nil {
		t.Fatal(err)
	}
	start(t, flags, named(amd.Single))
	const rest = "tandem.dev/gpu-links=xgmi\ntandem.dev/gpu-model=1002-74a1\ntandem.dev/pairs=0\n" +
		"tandem.dev/pairs-per-numa=0\ntandem.dev/switches=0\ntandem.dev/vf-hint=false\n"
	awaitContent(t, filepath.Join(features, "tandem"), "tandem.dev/alignment-enforced=false\n"+rest)
	stop, err := podsapi.Serve(node.KubeletDir, func() []corev1.Pod { return nil })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	awaitContent(t, filepath.Join(features, "tandem"), "tandem.dev/alignment-enforced=true\n"+rest)
}

// awaitContent waits until a feature file has a content, behind the line with its expiry time.
func awaitContent(t *testing.T, file, want string) {
	t.Helper()
	limit, again := time.After(kubelettest.Limit), time.NewTicker(20*time.Millisecond)
	defer again.Stop()
	for {
		content, err := os.ReadFile(file)
		until, features, _ := strings.Cut(string(content), "\n")
		if strings.HasPrefix(until, "# +expiry-time=") && features == want {
			return
		}
		select {
		case <-again.C:
		case <-limit:
			t.Fatalf("published:\n%s%v", content, err)
		}
	}
}
