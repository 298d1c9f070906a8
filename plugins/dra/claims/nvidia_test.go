// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package claims

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/spf13/pflag"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/plugins/gpu/nvidia"
	"github.com/tandem-k8s/tandem/test/disk"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/test/nvml"
	"github.com/tandem-k8s/tandem/topology"
)

// newNVIDIA makes a node of a recorded machine of which NVIDIA's library tells.
func newNVIDIA(t *testing.T, machine string, change func(*nvml.Machine), args ...string) *node {
	t.Helper()
	sys := machines.Sys(t, machine, 4)
	shown, err := nvml.Record(sys)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(&shown)
	}
	driver := nvml.Start(t, shown)
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	flags := nvidia.Register(set)
	if err := set.Parse(append([]string{"--driver-root-ctr-path=" + driver.Root}, args...)); err != nil {
		t.Fatal(err)
	}
	config, err := flags.Load(func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	dev := t.TempDir()
	if err := os.Mkdir(filepath.Join(dev, "nvidia-caps"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range append(shown.Nodes(), "nvidiactl", "nvidia-uvm") {
		if err := os.WriteFile(filepath.Join(dev, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	backend, err := nvidia.Open(config, nvidia.Machine{
		Sys: sys, Proc: fstest.MapFS{"driver/nvidia-caps/mig-minors": {Data: []byte(shown.Minors())}}, DevRoot: dev,
		CDIRoot: t.TempDir(),
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(backend.Close)
	tree, err := topology.Read(sys)
	if err != nil {
		t.Fatal(err)
	}
	return newNodeOf(t, disk.New(1), sys, tree, backend, toldVFs, true)
}

// A container gets NVIDIA's GPUs as NVIDIA's plugin gives them: by the variable, in the order of the VFs, and
// by device nodes where the configuration says so.
func TestNVIDIA(t *testing.T) {
	n := newNVIDIA(t, "nv-h100-oci", nil, "--pass-device-specs")
	claim := n.need("train", want{"pairs", pool.TypePair, 4})
	n.ready(claim)
	n.check(claim)
	n.aligned(claim, 4)
	edits := n.edits(claim, "pairs")
	n.verified(edits, 4, 4)
	visible := strings.Split(variable(edits, "NVIDIA_VISIBLE_DEVICES"), ",")
	if len(visible) != 4 || !strings.HasPrefix(visible[0], "GPU-") {
		t.Errorf("environment %q", edits.Env)
	}
	var nodes []string
	for _, node := range edits.DeviceNodes {
		nodes = append(nodes, node.Path)
	}
	for _, node := range []string{"/dev/nvidiactl", "/dev/nvidia0", "/dev/infiniband/rdma_cm"} {
		if !slices.Contains(nodes, node) {
			t.Errorf("nodes %v, want %s", nodes, node)
		}
	}
}

// MIG devices of one GPU are a bundle; of two resources in a container all are in the one variable.
func TestMIG(t *testing.T) {
	split := func(m *nvml.Machine) { m.GPUs[0].Split(4, 0, 10240) }
	n := newNVIDIA(t, "nv-h100-oci", split, "--mig-strategy=mixed")
	claim := n.need("train", want{"bundle", pool.TypeBundle, 1}, want{"gpu", pool.TypeGPU, 1})
	n.ready(claim)
	n.check(claim)
	visible := strings.Split(variable(n.edits(claim, "bundle"), "NVIDIA_VISIBLE_DEVICES"), ",")
	mig, whole := 0, 0
	for _, id := range visible {
		if strings.HasPrefix(id, "MIG-") {
			mig++
		} else {
			whole++
		}
	}
	if mig != 4 || whole != 1 {
		t.Errorf("visible %v", visible)
	}
}
