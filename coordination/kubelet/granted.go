// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Granted is the answer to a container's Allocate calls, as stored in the checkpoint. The kubelet stores the
// plugins' answers and applies them at each start of the container, also after a boot, without calling a
// plugin.
type Granted struct {
	Container string              // "pod UID/container"
	Devices   map[string][]string // IDs by resource, sorted
	Mounts    []string            // paths on the host
}

// ReadGranted reads them from the checkpoint below a kubelet directory, sorted by container.
func ReadGranted(kubeletDir string) ([]Granted, error) {
	content, err := readCheckpoint(kubeletDir)
	if err != nil {
		return nil, err
	}
	return parseGranted(content)
}

// grantedEntry is a checkpoint entry with the answer of the plugin.
type grantedEntry struct {
	entry
	AllocResp []byte `json:",omitempty"` // ContainerAllocateResponse as protobuf
}

func parseGranted(content []byte) ([]Granted, error) {
	decoded, err := decodeCheckpoint[grantedEntry](content)
	if err != nil {
		return nil, err
	}
	byContainer := map[string]*Granted{}
	for _, e := range decoded.Data.PodDeviceEntries {
		name := e.container()
		g := byContainer[name]
		if g == nil {
			g = &Granted{Container: name, Devices: map[string][]string{}}
			byContainer[name] = g
		}
		for _, ids := range e.DeviceIDs {
			g.Devices[e.ResourceName] = append(g.Devices[e.ResourceName], ids...)
		}
		slices.Sort(g.Devices[e.ResourceName])
		var answer v1beta1.ContainerAllocateResponse
		if proto.Unmarshal(e.AllocResp, &answer) != nil {
			continue // of an unknown plugin
		}
		for _, m := range answer.GetMounts() {
			g.Mounts = append(g.Mounts, m.GetHostPath())
		}
	}
	var all []Granted
	for _, g := range byContainer {
		all = append(all, *g)
	}
	slices.SortFunc(all, func(a, b Granted) int { return strings.Compare(a.Container, b.Container) })
	return all, nil
}
