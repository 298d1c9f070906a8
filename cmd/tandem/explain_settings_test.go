// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
	"github.com/tandem-k8s/tandem/coordination/intent"
)

// TestRejectionBySettings: a rejected pod is judged by the settings of the running kubelet, with drop-ins and
// flags, as by doctor; those of a kubelet with another root folder do not count.
func TestRejectionBySettings(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		root, policy, scope string
	}{
		"drop-in and flag": {"kubelet", "single-numa-node", "pod"},
		"another kubelet":  {"other", "restricted", "container"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := layOut(t, sysfs(t, "oci-mi300x-derived", 1))
			s.write("drop-ins/99.conf", kubeletKind+"topologyManagerScope: pod\n")
			s.write("other/file", "")
			s.process("7", "kubelet", "--root-dir="+s.path(c.root), "--config="+s.path("kubelet/config.yaml"),
				"--config-dir="+s.path("drop-ins"), "--topology-manager-policy=single-numa-node")
			s.pods.Store(&[]corev1.Pod{failed("team", "train-1", intent.TopologyAffinity)})
			run := filepath.Join(t.TempDir(), "run")
			twoPairs().run(t, run)
			folders := coordinator.Folders{RunDir: run, KubeletDir: s.path("kubelet"), ProcRoot: s.path("proc")}
			known, err := folders.Explain(t.Context(), coordinator.PodQuestion{Namespace: "team", Pod: "train-1"})
			r := known.Rejection
			if err != nil || r == nil || r.Policy != c.policy || r.Scope != c.scope {
				t.Errorf("%+v: %v", r, err)
			}
		})
	}
}
