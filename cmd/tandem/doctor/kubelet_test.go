// SPDX-License-Identifier: Apache-2.0

package doctor_test

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/tandem-k8s/tandem/cmd/tandem/doctor"
	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/managers"
	"github.com/tandem-k8s/tandem/test/kubelettest"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
)

// TestSettingsOfAPipe: kubectl tandem doctor sends the kubelet's configuration through a pipe, which is read
// once, for the hints of VFs and for the findings.
func TestSettingsOfAPipe(t *testing.T) {
	m, err := machines.Load("oci-mi300x-derived", 1)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := topology.Read(m.FS())
	if err != nil {
		t.Fatal(err)
	}
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
	n := doctor.Node{DevRoot: t.TempDir(), RunDir: t.TempDir(), Kubelet: managers.Kubelet{
		Sys: m.FS(), Tree: tree, KubeletDir: kubelettest.Dir(t), Config: fmt.Sprintf("/proc/self/fd/%d", r.Fd()),
	}}
	if got := n.Settings().TopologyManagerScope; got != "pod" {
		t.Errorf("the scope of the settings is %q", got)
	}
	if ids := found(n); slices.Contains(ids, "kubelet-config") {
		t.Errorf("it finds %q", ids)
	}
}
