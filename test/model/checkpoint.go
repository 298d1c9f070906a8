// SPDX-License-Identifier: Apache-2.0

package model

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// entry is an entry of the checkpoint (PodDevicesEntry in pkg/kubelet/cm/devicemanager/checkpoint).
type entry struct {
	PodUID, ContainerName, ResourceName string
	DeviceIDs                           map[int][]string
	AllocResp                           []byte `json:",omitempty"`
}

// write writes the devices of all containers to the checkpoint.
func (k *Kubelet) write() error {
	var content struct {
		Data struct {
			PodDeviceEntries  []entry
			RegisteredDevices map[string][]string
		}
	}
	for _, of := range slices.SortedFunc(maps.Keys(k.held), holder.compare) {
		for _, name := range slices.Sorted(maps.Keys(k.held[of])) {
			ids := k.held[of][name]
			content.Data.PodDeviceEntries = append(content.Data.PodDeviceEntries,
				entry{of.uid, of.container, name, map[int][]string{-1: ids}, k.responses[of][name]})
		}
	}
	content.Data.RegisteredDevices = k.registered
	maps.DeleteFunc(k.responses, func(of holder, _ map[string][]byte) bool { return k.held[of] == nil })
	encoded, err := json.Marshal(content)
	if err != nil {
		return fmt.Errorf("encode the checkpoint: %w", err)
	}
	name := kubelet.CheckpointPath(k.dir)
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return fmt.Errorf("make the checkpoint's folder: %w", err)
	}
	if err := os.WriteFile(name+".new", encoded, 0o600); err != nil {
		return fmt.Errorf("write the checkpoint: %w", err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		return fmt.Errorf("put the checkpoint in place: %w", err)
	}
	k.written = map[holder]kubelet.Devices{}
	for of, devices := range k.held {
		k.written[of] = clone(devices)
	}
	return nil
}
