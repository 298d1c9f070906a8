// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Allocation is an entry of the checkpoint: the devices of one resource of a container.
type Allocation struct {
	PodUID, Container, Resource string
	Devices                     map[string][]string // IDs by NUMA node, "-1" for none
	Response                    []byte              // ContainerAllocateResponse as protobuf; nil for none
}

// WriteCheckpoint replaces the checkpoint below a kubelet directory, for models of the kubelet; on a node
// only the kubelet writes the file. Registered has the healthy devices by resource.
func WriteCheckpoint(kubeletDir string, allocations []Allocation, registered map[string][]string) error {
	var content checkpointFile[grantedEntry]
	content.Data.RegisteredDevices = registered
	for _, a := range allocations {
		content.Data.PodDeviceEntries = append(content.Data.PodDeviceEntries, grantedEntry{
			entry:     entry{a.PodUID, a.Container, a.Resource, a.Devices},
			AllocResp: a.Response,
		})
	}
	encoded, err := json.Marshal(content)
	if err != nil {
		return fmt.Errorf("encode the device checkpoint: %w", err)
	}
	name := CheckpointPath(kubeletDir)
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return fmt.Errorf("make the device checkpoint's folder: %w", err)
	}
	if err := os.WriteFile(name+".new", encoded, 0o600); err != nil {
		return fmt.Errorf("write the device checkpoint: %w", err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		return fmt.Errorf("put the device checkpoint in place: %w", err)
	}
	return nil
}
