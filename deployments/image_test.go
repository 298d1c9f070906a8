// SPDX-License-Identifier: Apache-2.0

package deployments_test

import (
	"os"
	"strings"
	"testing"
)

// TestGPUsOfContainers: NVIDIA's runtime gives a container the GPUs of its environment, and creates no
// such container while the driver is not loaded. The image names no GPUs, and the containers that need the
// driver's library name all.
func TestGPUsOfContainers(t *testing.T) {
	const visible = "NVIDIA_VISIBLE_DEVICES"
	for file, want := range map[string]int{
		"../Dockerfile": 0, "base/daemonset-rdma.yaml": 0, "base/daemonset-gpu.yaml": 1, "dra/daemonset.yaml": 1,
		"helm/tandem/templates/daemonset-rdma.yaml": 0, "helm/tandem/templates/_configs.tpl": 0,
		"helm/tandem/templates/daemonset-gpu.yaml": 1, "helm/tandem/templates/dra-daemonset.yaml": 1,
	} {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(string(content), visible); got != want {
			t.Errorf("%s: %d containers name GPUs, want %d", file, got, want)
		}
	}
}
