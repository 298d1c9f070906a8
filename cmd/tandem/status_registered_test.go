// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestStatusOfRegistration: a resource is registered if the kubelet has its devices. If another plugin has
// registered the name later, the kubelet has that plugin's devices, and gives those to pods.
func TestStatusOfRegistration(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		others     bool // the kubelet's devices are those of another plugin
		registered int  // number of resources
	}{
		{name: "own devices", registered: 2},
		{name: "devices of another plugin", others: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newPodServer(t)
			answer := onMachine(t, "oci-mi300x-derived", 1)
			has := idsOf(answer)
			if c.others {
				has = map[string][]string{"amd.com/gpu": {"other-0"}, "tandem.dev/rdma_vf": {"other-1"}}
			}
			runDir, kubeletDir := filepath.Join(s.root, "run"), filepath.Join(s.root, "kubelet")
			flags := []string{"--run-dir=" + runDir, "--kubelet-dir=" + kubeletDir}
			plugins{status: answer}.run(t, runDir)
			podResources{devices: has}.run(t, kubeletDir)
			s.add("kube-system/tandem-gpu-b", "tandem-gpu", "gpu-1", itself(t), flags...)
			_, ofCluster, _ := plugin(s.start(), "status", "-o", "json")
			for command, shown := range map[string]string{
				"tandem status":         succeed(t, append(flags, "status", "-o", "json")...),
				"kubectl tandem status": ofCluster,
			} {
				if got := strings.Count(shown, `"registered": true`); got != c.registered {
					t.Errorf("%s: %d resources are registered; want %d", command, got, c.registered)
				}
			}
		})
	}
}
