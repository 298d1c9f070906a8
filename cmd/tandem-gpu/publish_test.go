package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/tandem-k8s/tandem/cmd/internal/daemon"
	"github.com/tandem-k8s/tandem/plugins/deviceplugin/kubelettest"
	"github.com/tandem-k8s/tandem/plugins/gpu/amd"
)

// TestPublish: the daemon publishes what it has announced, here labels of a node without VFs.
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
	const want = "tandem.dev/gpu-links=xgmi\ntandem.dev/gpu-model=1002-74a1\ntandem.dev/pairs=0\n" +
		"tandem.dev/pairs-per-numa=0\ntandem.dev/switches=0\ntandem.dev/vf-hint=false\n"
	limit, again := time.After(kubelettest.Limit), time.NewTicker(20*time.Millisecond)
	defer again.Stop()
	for {
		content, err := os.ReadFile(filepath.Join(features, "tandem"))
		if string(content) == want {
			return
		}
		select {
		case <-again.C:
		case <-limit:
			t.Fatalf("published:\n%s%v", content, err)
		}
	}
}
