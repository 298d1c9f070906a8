// SPDX-License-Identifier: Apache-2.0

package container_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/tandem-k8s/tandem/plugins/container"
)

// Whatever backends and grants return has words in CDI.
func TestCDI(t *testing.T) {
	var edits container.Edits
	for _, e := range []container.Edits{
		{
			Env: map[string]string{"NVIDIA_VISIBLE_DEVICES": "GPU-1,GPU-2", "EMPTY": ""},
			Nodes: []container.Node{
				{Path: "/dev/nvidia0", Host: "/driver/dev/nvidia0"}, {Path: "/dev/nvidia0", Host: "/other"},
			},
			Mounts: []container.Mount{{Path: "/run/gpu", Host: "/dev/null"}, {Path: "/run/gpu", Host: "/again"}},
			Named:  container.Named{Devices: []string{"nvidia.com/gpu=0", "nvidia.com/gpu=1"}, Field: true},
		},
		{
			Env:    map[string]string{"PCIDEVICE_A": "x"},
			Mounts: []container.Mount{{Path: "/run/pairs.json", Host: "/pairs.json", ReadOnly: true}},
			Named:  container.Named{Devices: []string{"nvidia.com/gpu=1", "nvidia.com/gpu=2"}},
		},
	} {
		edits.Add(e)
	}
	if diff := cmp.Diff(specs.ContainerEdits{
		Env: []string{"EMPTY=", "NVIDIA_VISIBLE_DEVICES=GPU-1,GPU-2", "PCIDEVICE_A=x"},
		DeviceNodes: []*specs.DeviceNode{
			{Path: "/dev/nvidia0", HostPath: "/driver/dev/nvidia0", Permissions: "rw"},
		},
		Mounts: []*specs.Mount{
			{ContainerPath: "/run/gpu", HostPath: "/dev/null", Options: []string{"rbind", "rprivate", "rw"}},
			{ContainerPath: "/run/pairs.json", HostPath: "/pairs.json", Options: []string{"rbind", "rprivate", "ro"}},
		},
	}, edits.CDI()); diff != "" {
		t.Error(diff)
	}
	named := []string{"nvidia.com/gpu=0", "nvidia.com/gpu=1", "nvidia.com/gpu=2"}
	if diff := cmp.Diff(named, edits.Named.Devices); diff != "" {
		t.Error(diff)
	}
}
