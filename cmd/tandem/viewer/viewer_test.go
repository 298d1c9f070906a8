// SPDX-License-Identifier: Apache-2.0

package viewer

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/cmd/tandem/picture"
	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/test/kubelettest"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
)

// join takes part like a plugin with one resource, and returns when connected.
func join(t *testing.T, runDir, sys, resource string, kind device.Kind, devices ...string) (leave func()) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	node, err := coordination.New(coordination.Config{
		RunDir: runDir, SysRoot: sys, KubeletDir: t.TempDir(), Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	var announcement device.Announcement
	for _, id := range devices {
		address, err := topology.ParseAddress(id)
		if err != nil {
			t.Fatal(err)
		}
		announcement.Devices = append(announcement.Devices, device.Device{ID: id, Address: address, Healthy: true})
	}
	node.Member(resource, kind).Publish(announcement)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- node.Run(ctx) }()
	leave = func() {
		cancel()
		<-ended
	}
	for {
		answer, err := coordination.Status(t.Context(), runDir)
		for _, r := range answer.GetResources() {
			if r.GetName() == resource && r.GetConnected() && err == nil {
				return leave
			}
		}
		if t.Context().Err() != nil {
			t.Fatalf("%s does not join: %v", resource, err)
		}
	}
}

// The picture has the data of real plugins, on the cards of the machine, through a restart of both.
func TestLook(t *testing.T) {
	m, err := machines.Load("oci-mi300x-derived", 2)
	if err != nil {
		t.Fatal(err)
	}
	dir := kubelettest.Dir(t)
	sys := filepath.Join(dir, "sys")
	if err := os.CopyFS(sys, m.FS()); err != nil {
		t.Fatal(err)
	}
	v := &Viewer{
		RunDir: filepath.Join(dir, "run"), From: machine.Source{SysfsRoot: sys}, palette: picture.Palette{},
	}
	if n, err := v.look(t.Context()); err == nil || !strings.Contains(err.Error(), "no answer") ||
		n == nil || len(n.Cards) != 16 || len(n.Notes) != 1 {
		t.Errorf("without plugins: %+v, %v", n, err)
	}
	leave := join(t, v.RunDir, sys, "amd.com/gpu", device.GPU, "0000:11:00.0", "0000:2f:00.0")
	look := func() *picture.Node {
		t.Helper()
		n, err := v.look(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	expectState(t, look(), "0000:11:00.0", "amd.com/gpu", picture.Stranded)
	expectState(t, look(), "0000:46:00.0", "", picture.Unknown)
	if n := look(); !slices.Contains(n.Summary, "GPUs free 2/2") {
		t.Errorf("summary %q", n.Summary)
	}
	for owner, want := range map[string]string{
		"a/b": "container b of pod a: not among the last", "a/b/c": "container c of pod a/b: not among the last",
		"a": "want NAMESPACE/POD/CONTAINER",
	} {
		if _, err := v.explain(t.Context(), owner); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("explain %s: %v, want %q", owner, err, want)
		}
	}
	alsoLeave := join(t, v.RunDir, sys, "nvidia.com/vf", device.VF, "0000:0c:00.1")
	expectState(t, look(), "0000:11:00.0", "amd.com/gpu", picture.Free)
	expectState(t, look(), "0000:2f:00.0", "amd.com/gpu", picture.Stranded)
	expectState(t, look(), "0000:0c:00.1", "nvidia.com/vf", picture.Free)
	expectState(t, look(), "0000:0c:00.2", "", picture.Unknown)
	// 6 GPUs, 15 VFs
	if n := look(); len(n.Cards) != 16 || len(n.Notes) != 2 ||
		!strings.HasPrefix(n.Notes[0], "Annotation tandem.dev/alignment of pods is not enforced") ||
		!strings.Contains(n.Notes[1], "there are 21") {
		t.Errorf("%d cards, notes %q", len(n.Cards), n.Notes)
	}
	alsoLeave()
	leave()
	if _, err := v.look(t.Context()); err == nil {
		t.Error("no error while both plugins are away")
	}
	defer join(t, v.RunDir, sys, "amd.com/gpu", device.GPU, "0000:11:00.0", "0000:2f:00.0")()
	n := look()
	expectState(t, n, "0000:11:00.0", "amd.com/gpu", picture.Stranded)
	// as last announced, because the plugin is away
	expectState(t, n, "0000:0c:00.1", "nvidia.com/vf", picture.Unhealthy)
	if len(n.Notes) != 3 || !strings.HasPrefix(n.Notes[1], "The plugin of nvidia.com/vf is away") {
		t.Errorf("notes %q", n.Notes)
	}
}

func expectState(t *testing.T, n *picture.Node, id, resource string, state picture.State) {
	t.Helper()
	for _, c := range n.Cards {
		for _, d := range c.Devices {
			if d.ID == id {
				if d.State != state || d.Resource != resource {
					t.Errorf("%s is %q %q, want %q %q", id, d.Resource, d.State, resource, state)
				}
				return
			}
		}
	}
	t.Errorf("%s is not drawn", id)
}
