// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/test/kubelettest"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
)

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

// The coordinator places the devices on the switches of the topology file, and chooses the GPU next to the VF
// instead of the first one.
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
	chosen, err := gpus.Prefer(ctx, &api.PreferRequest{
		Resource: "gpu", Available: []string{"0000:05:00.0", "0000:06:00.0"}, Size: 1,
	})
	if err != nil || !slices.Equal(chosen, []string{"0000:06:00.0"}) {
		t.Errorf("the GPUs %v are preferred, %v, want the one beside the VF", chosen, err)
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
	for file, want := range map[string]string{
		"<system>": "use --topology-file: read topology file %s: line 1: <system version=\"\">: want 1 (NCCL) " +
			"or 2 (RCCL)",
		`<system version="1"><cpu numaid="0"><pci busid="0001:00:00.0"/></cpu></system>`: "apply topology file " +
			"%s: this machine has none of the file's 1 PCI functions",
	} {
		f := flat(t, file)
		_, err := f.Node(slog.New(slog.DiscardHandler))
		if err == nil || !strings.HasPrefix(err.Error(), fmt.Sprintf(want, f.TopologyFile)) {
			t.Errorf("%s: %v", file, err)
		}
	}
	f := flat(t, "")
	f.TopologyFile += "x"
	if _, err := f.Node(slog.New(slog.DiscardHandler)); err == nil ||
		!strings.Contains(err.Error(), "no such file") {
		t.Error(err)
	}
}
