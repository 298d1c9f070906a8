// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/test/kubelettest"
)

// TestNodesOfCDI: a container gets the device nodes of the CDI specification. Therefore a GPU is healthy only
// while the specification has its node.
func TestNodesOfCDI(t *testing.T) {
	for name, late := range map[string]bool{ // device nodes come after the start, as without nvidia-modprobe
		"there": false, "late": true,
	} {
		t.Run(name, func(t *testing.T) {
			n := nvidiaNode(t, "nv-a100pcie-cx6dx-vf-partial", nil)
			installLibrary(t, n)
			if !late {
				makeDeviceNodes(t, n)
			}
			_, _, plugin := n.offers(t, nil, "--device-list-strategy=cdi-cri")
			healthy := n.healthyWithNodes(t, kubelettest.Await(t, plugin.Lists))
			if late {
				makeDeviceNodes(t, n)
			}
			for healthy < len(n.Machine.GPUs) {
				healthy = n.healthyWithNodes(t, kubelettest.Await(t, plugin.Lists))
			}
		})
	}
}

// healthyWithNodes returns the number of healthy GPUs, and fails the test if the specification lacks the node
// of one of them.
func (n *node) healthyWithNodes(t *testing.T, devices []*v1beta1.Device) (healthy int) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(n.dir, "cdi/k8s.device-plugin.nvidia.com-gpu.json"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // without a node there may be no specification
		t.Fatal(err)
	}
	var lacking []int
	for _, gpu := range n.Machine.GPUs {
		if !slices.ContainsFunc(devices, func(d *v1beta1.Device) bool {
			return d.GetID() == gpu.UUID && d.GetHealth() == v1beta1.Healthy
		}) {
			continue
		}
		healthy++
		if !strings.Contains(string(content), fmt.Sprintf(`"path":"/dev/nvidia%d"`, gpu.Minor)) {
			lacking = append(lacking, gpu.Minor)
		}
	}
	if len(lacking) > 0 {
		t.Fatalf("the specification has no nodes of the healthy GPUs %v", lacking)
	}
	return healthy
}
