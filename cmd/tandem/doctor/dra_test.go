// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/test/kubelettest"
	"github.com/tandem-k8s/tandem/test/machines"
)

// found are the IDs of what is found on a node.
func found(n Node) (ids []string) {
	for _, f := range Examine(n).Findings {
		ids = append(ids, f.ID)
	}
	return ids
}

// TestDRA: in the mode of DRA it counts whether the kubelet finds the driver and what the API server can do,
// and not what the kubelet's managers align.
func TestDRA(t *testing.T) {
	n := inDRA(t)
	n.Mode = coordination.DevicePlugin
	n.Notes = []string{"feature gate DRAPartitionableDevices of the API server is off", "another note"}
	if ids := found(n); slices.Contains(ids, "dra-socket") || !slices.Contains(ids, "kubelet-socket") {
		t.Errorf("in the mode of device plugins it finds %q", ids)
	}
	n.Mode = coordination.DRA
	ids := found(n)
	for id, want := range map[string]bool{
		"dra-socket": true, "dra-gates": true, "modes": false, "kubelet-socket": false, "topology-policy": false,
	} {
		if slices.Contains(ids, id) != want {
			t.Errorf("it finds %q; %s: want %v", ids, id, want)
		}
	}
	registry := filepath.Join(n.KubeletDir, "plugins_registry")
	if err := os.Mkdir(registry, 0o750); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", filepath.Join(registry, "tandem.dev-reg.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	n.Notes = n.Notes[1:]
	if ids := found(n); slices.Contains(ids, "dra-socket") || slices.Contains(ids, "dra-gates") {
		t.Errorf("where all is well it finds %q", ids)
	}
	inDRA, err := coordination.Enter(t.Context(), coordination.DRA, n.RunDir, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer inDRA()
	other := filepath.Join(kubelettest.Plugins(n.KubeletDir), "tandem")
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	inPlugins, err := coordination.Enter(t.Context(), coordination.DevicePlugin, other, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer inPlugins()
	if ids := found(n); !slices.Contains(ids, "modes") {
		t.Errorf("both modes at once: it finds %q", ids)
	}
	asked := Node{RunDir: n.RunDir}
	asked.AskMode(t.Context())
	if asked.Mode != coordination.DRA {
		t.Errorf("running mode %q", asked.Mode)
	}
}

// TestDRAWithoutGPUs: GPUs that the driver does not publish are found by the driver's note.
func TestDRAWithoutGPUs(t *testing.T) {
	t.Parallel()
	n := inDRA(t)
	if ids := found(n); slices.Contains(ids, "gpus-not-offered") {
		t.Errorf("it finds %q", ids)
	}
	n.Notes = []string{"no GPU is published: 8 GPUs"}
	if ids := found(n); !slices.Contains(ids, "gpus-not-offered") {
		t.Errorf("it finds %q", ids)
	}
}

// TestDRAWithStaleKubelet: resources of the driver that the kubelet still has from device plugins are found.
func TestDRAWithStaleKubelet(t *testing.T) {
	t.Parallel()
	n := inDRA(t)
	file := kubelet.CheckpointPath(n.KubeletDir)
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		t.Fatal(err)
	}
	const content = `{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{"amd.com/gpu":null,"other":["a"]}},` +
		`"Checksum":1}`
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if ids := found(n); slices.Contains(ids, "kubelet-stale-resources") {
		t.Errorf("without a resource of the driver it finds %q", ids)
	}
	n.status.Resources = []coordinator.Resource{{Name: "amd.com/gpu"}, {Name: "tandem.dev/rdma_vf"}}
	if ids := found(n); !slices.Contains(ids, "kubelet-stale-resources") {
		t.Errorf("it finds %q", ids)
	}
}

// inDRA is a node in the mode of DRA.
func inDRA(t *testing.T) Node {
	t.Helper()
	sys, tree := machines.Read(t, "oci-mi300x-derived", 1)
	return Node{
		Sys: sys, Tree: tree, KubeletDir: kubelettest.Dir(t), DevRoot: t.TempDir(), RunDir: t.TempDir(),
		Mode: coordination.DRA,
	}
}
