// SPDX-License-Identifier: Apache-2.0

package published

import (
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// Entry is a container's entry for a resource in the kubelet's device checkpoint.
type Entry struct {
	PodUID        string
	ContainerName string
	ResourceName  string
	DeviceIDs     map[string][]string // by NUMA node
}

// WriteCheckpoint writes the device checkpoint into a kubelet's folder, as a whole.
func WriteCheckpoint(kubeletDir string, entries ...Entry) error {
	content, err := json.Marshal(map[string]any{
		"Data": map[string]any{"PodDeviceEntries": entries, "RegisteredDevices": map[string][]string{}},
	})
	if err != nil {
		return err
	}
	name := kubelet.CheckpointPath(kubeletDir)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(name+".new", content, 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// Give returns an entry of some devices without a NUMA node.
func Give(uid, container, resource string, ids ...string) Entry {
	return Entry{uid, container, resource, map[string][]string{"-1": ids}}
}
