package kubelet

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// Checkpoint is the device manager's record of who holds which devices, as the kubelet last wrote it to disk. It is written
// when all resources of a container have been allocated, before the next container's turn (allocateContainerResources in
// pkg/kubelet/cm/devicemanager/manager.go), and when a plugin's device list changes. Devices that have become free stay in it until the
// next write. Reading it asks nothing of the kubelet.
type Checkpoint struct {
	holders map[string]map[string][]string // resource → device ID → "pod UID/container"
}

// checkpointFile is the file's format, as far as it matters here (pkg/kubelet/cm/devicemanager/checkpoint/checkpoint.go).
type checkpointFile struct {
	Data struct {
		PodDeviceEntries []struct {
			PodUID        string
			ContainerName string
			ResourceName  string
			DeviceIDs     map[string][]string // by NUMA node
		}
	}
}

// ReadCheckpoint reads the checkpoint below a kubelet folder (/var/lib/kubelet). The kubelet replaces the file as a whole,
// so what is read is never half of one.
func ReadCheckpoint(kubeletDir string) (Checkpoint, error) {
	content, err := os.ReadFile(filepath.Join(kubeletDir, "device-plugins", "kubelet_internal_checkpoint"))
	if err != nil {
		return Checkpoint{}, fmt.Errorf("read the kubelet's device checkpoint: %w", err)
	}
	return parseCheckpoint(content)
}

func parseCheckpoint(content []byte) (Checkpoint, error) {
	var file checkpointFile
	if err := json.Unmarshal(content, &file); err != nil {
		return Checkpoint{}, fmt.Errorf("parse the kubelet's device checkpoint: %w", err)
	}
	c := Checkpoint{holders: map[string]map[string][]string{}}
	for _, e := range file.Data.PodDeviceEntries {
		if c.holders[e.ResourceName] == nil {
			c.holders[e.ResourceName] = map[string][]string{}
		}
		for _, ids := range e.DeviceIDs {
			for _, id := range ids {
				holders := c.holders[e.ResourceName]
				holders[id] = append(holders[id], e.PodUID+"/"+e.ContainerName)
			}
		}
	}
	return c, nil
}

// Holders lists the containers that the checkpoint shows with any of the devices, "pod UID/container", sorted. More than
// one can be shown with a device: an init container and the app container after it, or a pod that is gone.
func (c Checkpoint) Holders(resource string, ids []string) []string {
	var holders []string
	for _, id := range ids {
		holders = append(holders, c.holders[resource][id]...)
	}
	slices.Sort(holders)
	return slices.Compact(holders)
}
