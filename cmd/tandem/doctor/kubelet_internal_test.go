// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/test/kubelettest"
	"github.com/tandem-k8s/tandem/test/machines"
)

// TestSettingsOfAPipe: kubectl tandem doctor sends the kubelet's configuration through a pipe, which is read
// once, for the hints of VFs and for the findings.
func TestSettingsOfAPipe(t *testing.T) {
	sys, tree := machines.Read(t, "oci-mi300x-derived", 1)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	config := "apiVersion: kubelet.config.k8s.io/v1beta1\n" +
		"kind: KubeletConfiguration\ntopologyManagerScope: pod\n"
	if _, err := w.WriteString(config); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	n := Node{
		DevRoot: t.TempDir(), RunDir: t.TempDir(), KubeletDir: kubelettest.Dir(t), Sys: sys, Tree: tree,
		Config: fmt.Sprintf("/proc/self/fd/%d", r.Fd()),
	}
	if got := n.hintSettings().TopologyManagerScope; got != "pod" {
		t.Errorf("the scope of the settings is %q", got)
	}
	found := Examine(n).Findings
	if slices.ContainsFunc(found, func(f Finding) bool { return f.ID == "kubelet-config" }) {
		t.Errorf("it finds %+v", found)
	}
}

// TestConfigOfTheNode: the ConfigMap of the SR-IOV network operator has a key for each node. The node's
// counts, also without a pool, and each of a ConfigMap without a key of its name.
func TestConfigOfTheNode(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	volume := filepath.Join(dir, "pods/uid/volumes/kubernetes.io~configmap/device-plugin-config")
	if err := os.MkdirAll(volume, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"gpu-1": `{"resourceList": [{"resourceName": "a"}]}`, "gpu-2": `{"resourceList": [{"resourceName": "b"}]}`,
		"cpu-1": `{"resourceList": null}`,
	} {
		if err := os.WriteFile(filepath.Join(volume, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for node, want := range map[string]string{"gpu-1": "gpu-1", "gpu-2": "gpu-2", "cpu-1": "", "other": ""} {
		name, err := mountedConfig(dir, node)
		if strings.TrimPrefix(name, volume+"/") != want || (err != nil) != (node == "other") {
			t.Errorf("of node %s: %q, %v; want %q", node, name, err, want)
		}
	}
}
