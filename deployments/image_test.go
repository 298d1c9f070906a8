// SPDX-License-Identifier: Apache-2.0

package deployments_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/test/known"
)

// TestGPUsOfContainers: NVIDIA's runtime gives a container the GPUs of its environment, and creates no
// such container while the driver is not loaded. If the image names all GPUs, each container names its own
// GPUs, or requests devices, whose plugin names them.
func TestGPUsOfContainers(t *testing.T) {
	known.Fault(t, "the image names all GPUs, and containers that need none do not override it",
		`base/daemonset-rdma.yaml: the container gets all GPUs`)
	dockerfile, err := os.ReadFile("../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	const visible = "NVIDIA_VISIBLE_DEVICES"
	if !strings.Contains(string(dockerfile), visible+"=all") {
		return
	}
	image := regexp.MustCompile(`(?m)(?:^|\s)image: `)
	own := regexp.MustCompile(`^(?:ghcr\.io/tandem-k8s/tandem:|\{\{ include "tandem\.image")`)
	requests := regexp.MustCompile(`(?:/gpu|/pair|\{\{ \$gpus \}\}|claims):`)
	for _, pattern := range []string{"*/*.yaml", "helm/tandem/templates/*", "helm/tandem/templates/tests/*"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, file := range files {
			if info, err := os.Stat(file); err != nil || info.IsDir() {
				continue
			}
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, container := range image.Split(string(content), -1)[1:] {
				if own.MatchString(container) && !strings.Contains(container, visible) &&
					!requests.MatchString(container) {
					t.Errorf("%s: the container gets all GPUs", file)
				}
			}
		}
	}
}
