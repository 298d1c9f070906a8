// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/test/kubelettest"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
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
	t.Attr("parity", "all/coordination-socket-location")
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

// flat is a guest with a flat PCI tree, with flags for a topology file.
func flat(t *testing.T, file string) Flags {
	t.Helper()
	dir := kubelettest.Dir(t)
	f := Flags{
		SysfsRoot:    filepath.Join(dir, "sys"),
		RunDir:       filepath.Join(dir, "run"),
		KubeletDir:   dir,
		TopologyFile: filepath.Join(dir, "topo.xml"),
		monitor:      newMonitor("test"),
	}
	if err := os.CopyFS(f.SysfsRoot, machines.Sys(t, "nv-h200-vm-flat", 2)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(f.TopologyFile, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	return f
}

// The coordinator places the devices on the switches of the topology file.
func TestTopologyFile(t *testing.T) {
	f := flat(t, `<system version="1"><cpu numaid="0">
<pci busid="ffff:ff:01.0"><pci busid="0000:05:00.0"/><pci busid="0000:14:00.0"/></pci>
<pci busid="ffff:ff:02.0"><pci busid="0000:06:00.0"/><pci busid="0000:13:00.0"/></pci></cpu></system>`)
	node, err := f.Node(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	gpus, vfs := node.Member("gpu", device.GPU), node.Member("vf", device.VF)
	gpus.Publish(announce(t, "0000:05:00.0", "0000:06:00.0"))
	vfs.Publish(announce(t, "0000:13:00.1"))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- node.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	for joined := false; !joined; {
		answer, err := coordination.Status(ctx, f.RunDir)
		joined = err == nil && len(answer.GetResources()) == 2
	}
	answer, err := coordination.Status(ctx, f.RunDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range answer.GetResources() {
		for i, d := range r.GetDevices() {
			want := fmt.Sprintf("ffff:ff:%02x.0", 1+i)
			if r.GetName() == "vf" {
				want = "ffff:ff:02.0"
			}
			if d.GetSwitch() != want {
				t.Errorf("%s is on %s, want %s", d.GetDevice().GetAddress(), d.GetSwitch(), want)
			}
		}
	}
}

func announce(t *testing.T, addresses ...string) (a device.Announcement) {
	t.Helper()
	for _, id := range addresses {
		address, err := topology.ParseAddress(id)
		if err != nil {
			t.Fatal(err)
		}
		a.Devices = append(a.Devices, device.Device{ID: id, Address: address, Healthy: true})
	}
	return a
}

// A faulty file ends the daemon at its start, with a sentence that names the file.
func TestTopologyFileErrors(t *testing.T) {
	f := flat(t, "")
	for file, want := range map[string]string{
		"<system>": "use --topology-file: read topology file %s: line 1: <system version=\"\">: want 1 (NCCL) " +
			"or 2 (RCCL)",
		`<system version="1"><cpu numaid="0"><pci busid="0001:00:00.0"/></cpu></system>`: "apply topology file " +
			"%s: this machine has none of the file's 1 PCI functions",
	} {
		if err := os.WriteFile(f.TopologyFile, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := f.Node(slog.New(slog.DiscardHandler))
		if err == nil || !strings.HasPrefix(err.Error(), fmt.Sprintf(want, f.TopologyFile)) {
			t.Errorf("%s: %v", file, err)
		}
	}
	f.TopologyFile += "x"
	if _, err := f.Node(slog.New(slog.DiscardHandler)); err == nil ||
		!strings.Contains(err.Error(), "no such file") {
		t.Error(err)
	}
}
