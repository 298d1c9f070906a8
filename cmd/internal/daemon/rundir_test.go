// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/test/kubelettest"
)

// kubeletAlone is a node with a kubelet's folder and no devices.
func kubeletAlone(t *testing.T) Flags {
	t.Helper()
	dir := kubelettest.Dir(t)
	f := Flags{KubeletDir: dir, SysfsRoot: filepath.Join(dir, "sys"), monitor: newMonitor("test")}
	if err := os.MkdirAll(filepath.Join(f.SysfsRoot, "bus/pci/devices"), 0o750); err != nil {
		t.Fatal(err)
	}
	return f
}

// takePart runs a daemon's part with one resource until the test ends, and waits until the run folder shows
// it.
func takePart(t *testing.T, f Flags, resource string, kind device.Kind) *coordination.Node {
	t.Helper()
	node, err := f.Node(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	node.Member(resource, kind).Publish(device.Announcement{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- node.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	for known := false; !known; {
		answer, err := coordination.Status(ctx, f.RunFolder())
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range answer.GetResources() {
			known = known || r.GetName() == resource
		}
	}
	return node
}

// TestUntold: two daemons without --run-dir share a folder that both can use, which survives the cleanup at a
// kubelet's start.
func TestUntold(t *testing.T) {
	f := kubeletAlone(t)
	gpus := takePart(t, f, "amd.com/gpu", device.GPU)
	vfs := takePart(t, f, "intel.com/vf", device.VF)
	if gpus.Role() != coordination.Serves || vfs.Role() != coordination.Joined {
		t.Errorf("one is %s and the other %s", gpus.Role(), vfs.Role())
	}
	kubelettest.Start(t, f.KubeletDir) // removes the sockets in its folder
	want := filepath.Join(kubelettest.Plugins(f.KubeletDir), "tandem")
	if got := coordination.FindRunDir(f.KubeletDir); got != want || !coordination.Answers(got) {
		t.Errorf("the run folder is %s, want %s, where one answers", got, want)
	}
}

func TestToldIsLaw(t *testing.T) {
	f := kubeletAlone(t)
	f.RunDir = filepath.Join(f.KubeletDir, "run")
	takePart(t, f, "amd.com/gpu", device.GPU)
	if f.RunFolder() != f.RunDir || !coordination.Answers(f.RunDir) {
		t.Errorf("nobody answers in %s", f.RunDir)
	}
	if _, err := os.Stat(coordination.RunDir(f.KubeletDir)); !os.IsNotExist(err) {
		t.Errorf("the folder of the untold is there: %v", err)
	}
}

// TestNoKubeletFolder: a missing kubelet folder is not created.
func TestNoKubeletFolder(t *testing.T) {
	f := kubeletAlone(t)
	f.KubeletDir += "/none"
	_, err := f.Node(slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "check that a kubelet runs on this node") {
		t.Error(err)
	}
	if _, err := os.Stat(f.KubeletDir); !os.IsNotExist(err) {
		t.Errorf("a kubelet's folder was made: %v", err)
	}
}

// TestAlone: one line of the log reports the absence of the other daemon, and the folder of a daemon
// elsewhere.
func TestAlone(t *testing.T) {
	for _, c := range []struct {
		name   string
		others func(t *testing.T, f Flags)
		want   string
	}{
		{"the other is there",
			func(t *testing.T, f Flags) { takePart(t, f, "intel.com/vf", device.VF) }, ""},
		{"nobody else", func(*testing.T, Flags) {}, "no plugin for the other kind of device uses"},
		{"the other one is elsewhere", func(t *testing.T, f Flags) {
			f.RunDir = ""
			takePart(t, f, "intel.com/vf", device.VF)
		}, "the two plugins use different run folders"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := kubeletAlone(t)
			f.RunDir = filepath.Join(f.KubeletDir, "run")
			node := takePart(t, f, "amd.com/gpu", device.GPU)
			c.others(t, f)
			var log bytes.Buffer
			if err := f.tellAlone(t.Context(), slog.New(slog.NewTextHandler(&log, nil)), node, 0); err != nil {
				t.Fatal(err)
			}
			if got := log.String(); !strings.Contains(got, c.want) || (c.want == "") != (got == "") ||
				strings.Count(got, "\n") > 1 {
				t.Errorf("log %q, want %q", got, c.want)
			}
		})
	}
}
