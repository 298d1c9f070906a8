// SPDX-License-Identifier: Apache-2.0

// Package checkpoint writes a kubelet's device checkpoint, for models of the kubelet: on a node only the
// kubelet writes the file.
package checkpoint

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// Allocation is an entry of the checkpoint: the devices of one resource of a container.
type Allocation struct {
	PodUID    string
	Container string              `json:"ContainerName"`
	Resource  string              `json:"ResourceName"`
	Devices   map[string][]string `json:"DeviceIDs"`           // IDs by NUMA node, "-1" for none
	Response  []byte              `json:"AllocResp,omitempty"` // ContainerAllocateResponse as protobuf; nil for none
}

// Write replaces the checkpoint below a kubelet directory as a whole. Registered has the healthy devices by
// resource.
func Write(kubeletDir string, allocations []Allocation, registered map[string][]string) error {
	content, err := json.Marshal(map[string]any{
		"Data": map[string]any{"PodDeviceEntries": allocations, "RegisteredDevices": registered},
	})
	if err != nil {
		return fmt.Errorf("encode the device checkpoint: %w", err)
	}
	name := kubelet.CheckpointPath(kubeletDir)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return fmt.Errorf("make the device checkpoint's folder: %w", err)
	}
	if err := os.WriteFile(name+".new", content, 0o600); err != nil {
		return fmt.Errorf("write the device checkpoint: %w", err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		return fmt.Errorf("put the device checkpoint in place: %w", err)
	}
	return nil
}
