// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"google.golang.org/protobuf/proto"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/coordination/system"
)

// Checkpoint is the device manager's checkpoint file: the devices of each container when the kubelet last
// wrote it. The kubelet writes it when all resources of a container have been allocated, before the next
// container (allocateContainerResources in pkg/kubelet/cm/devicemanager/manager.go), and when a plugin's
// device list changes. Released devices remain in the file until the next write. Reading the file does not
// involve the kubelet.
type Checkpoint struct {
	// Identity distinguishes this checkpoint from earlier and later ones.
	Identity Identity

	holders    map[string]map[string][]string // resource → device ID → "pod UID/container"
	containers map[string]Devices             // "pod UID/container" → its devices
	// nodes: resource → device ID → NUMA node, of assigned devices with a node.
	nodes   map[string]map[string]int
	healthy map[string][]string // resource → device IDs
}

// Identity distinguishes a file from its replacement: the kubelet replaces its checkpoint as a whole. The
// time alone is too coarse, and file systems reuse inodes. The zero value means no file.
type Identity struct {
	Inode    uint64
	Modified int64 // nanoseconds since 1970
	Size     int64
	Sum      uint32 // CRC-32 of the content
}

// identifyFile returns the identity of an open file with the given content.
func identifyFile(file *os.File, content []byte) (Identity, error) {
	info, err := file.Stat()
	if err != nil {
		return Identity{}, err
	}
	identity := Identity{
		Modified: info.ModTime().UnixNano(), Size: info.Size(), Sum: crc32.ChecksumIEEE(content),
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		identity.Inode = stat.Ino
	}
	return identity, nil
}

// checkpointFile is the part of the file format that is read here
// (pkg/kubelet/cm/devicemanager/checkpoint/checkpoint.go). The type parameter is entry, or a type with more
// fields.
type checkpointFile[Entry any] struct {
	Data struct {
		PodDeviceEntries  []Entry
		RegisteredDevices map[string][]string // healthy devices
	}
}

// entry holds the devices of one resource of a container.
type entry struct {
	PodUID        string
	ContainerName string
	ResourceName  string
	DeviceIDs     map[string][]string // by NUMA node, "-1" for none
}

func (e entry) containerName() string { return e.PodUID + "/" + e.ContainerName }

// CheckpointPath returns the path of the checkpoint below a kubelet directory (/var/lib/kubelet).
func CheckpointPath(kubeletDir string) string {
	return filepath.Join(kubeletDir, "device-plugins", "kubelet_internal_checkpoint")
}

// ReadCheckpoint reads the checkpoint below a kubelet directory. The kubelet replaces the file as a whole, so
// the content is always complete. A missing file is an error, and so is a file of unknown layout: neither
// tells that no container has a device.
func ReadCheckpoint(kubeletDir string) (Checkpoint, error) {
	return NewCheckpointReader(kubeletDir).Read()
}

// CheckpointReader reads the checkpoint below a kubelet directory repeatedly and parses it only after a
// change; it does not change while the kubelet allocates the resources of one container. It is not safe for
// concurrent use, and callers must not change the results.
type CheckpointReader struct {
	dir     string
	content []byte
	parsed  Checkpoint
}

// NewCheckpointReader returns a reader for a kubelet directory (/var/lib/kubelet).
func NewCheckpointReader(kubeletDir string) *CheckpointReader {
	return &CheckpointReader{dir: kubeletDir}
}

// Read returns the same as [ReadCheckpoint].
func (r *CheckpointReader) Read() (Checkpoint, error) {
	opened, err := os.Open(CheckpointPath(r.dir))
	if err != nil {
		return Checkpoint{}, fmt.Errorf("read the kubelet's device checkpoint: %w", err)
	}
	defer opened.Close()
	content, err := io.ReadAll(opened)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("read the kubelet's device checkpoint: %w", err)
	}
	identity, err := identifyFile(opened, content)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("look at the kubelet's device checkpoint: %w", err)
	}
	if r.content == nil || !bytes.Equal(content, r.content) {
		parsed, err := parseCheckpoint(content)
		if err != nil {
			return Checkpoint{}, err
		}
		r.content, r.parsed = content, parsed
	}
	r.parsed.Identity = identity
	return r.parsed, nil
}

func readCheckpoint(kubeletDir string) ([]byte, error) {
	content, err := os.ReadFile(CheckpointPath(kubeletDir))
	if err != nil {
		return nil, fmt.Errorf("read the kubelet's device checkpoint: %w", err)
	}
	return content, nil
}

// checkpointLayout has the keys of every checkpoint, also of one without containers.
var checkpointLayout = system.Layout{Keys: []string{"Data.PodDeviceEntries", "Data.RegisteredDevices"}}

func decodeCheckpoint[Entry any](content []byte) (checkpointFile[Entry], error) {
	decoded, err := system.Decode[checkpointFile[Entry]](content, checkpointLayout)
	if err != nil {
		err = fmt.Errorf("read the kubelet's device checkpoint: %w", err)
	}
	return decoded, err
}

func parseCheckpoint(content []byte) (Checkpoint, error) {
	decoded, err := decodeCheckpoint[entry](content)
	if err != nil {
		return Checkpoint{}, err
	}
	c := Checkpoint{
		holders:    map[string]map[string][]string{},
		containers: map[string]Devices{},
		nodes:      map[string]map[string]int{},
		healthy:    decoded.Data.RegisteredDevices,
	}
	for _, e := range decoded.Data.PodDeviceEntries {
		container := e.containerName()
		if c.containers[container] == nil {
			c.containers[container] = Devices{}
		}
		if c.holders[e.ResourceName] == nil {
			c.holders[e.ResourceName], c.nodes[e.ResourceName] = map[string][]string{}, map[string]int{}
		}
		for _, node := range slices.Sorted(maps.Keys(e.DeviceIDs)) {
			number, err := strconv.Atoi(node)
			ids := e.DeviceIDs[node]
			c.containers[container][e.ResourceName] = append(c.containers[container][e.ResourceName], ids...)
			for _, id := range ids {
				holders := c.holders[e.ResourceName]
				holders[id] = append(holders[id], container)
				if err == nil && number >= 0 {
					c.nodes[e.ResourceName][id] = number
				}
			}
		}
	}
	return c, nil
}

// Containers returns the devices by container, "pod UID/container". The result must not be changed.
func (c Checkpoint) Containers() map[string]Devices { return c.containers }

// Held returns the devices of containers, by resource.
func (c Checkpoint) Held() map[string][]string {
	held := map[string][]string{}
	for resource, holders := range c.holders {
		held[resource] = slices.Collect(maps.Keys(holders))
	}
	return held
}

// Registered returns the healthy devices of every registered resource.
func (c Checkpoint) Registered() map[string][]string { return c.healthy }

// Listed returns every device of a resource that the kubelet can refer to: the healthy devices of the
// plugin's last list and all assigned devices. The value is the NUMA node, or -1 if the checkpoint does not
// contain it.
func (c Checkpoint) Listed(resource string) map[string]int {
	listed := map[string]int{}
	for _, id := range c.healthy[resource] {
		listed[id] = -1
	}
	for id := range c.holders[resource] {
		listed[id] = -1
	}
	maps.Copy(listed, c.nodes[resource])
	return listed
}

// Has reports whether a container of the given name holds all the devices, in any pod.
func (c Checkpoint) Has(container, resource string, ids []string) bool {
	for _, id := range ids {
		if !slices.ContainsFunc(c.holders[resource][id], func(holder string) bool {
			_, name, _ := strings.Cut(holder, "/")
			return name == container
		}) {
			return false
		}
	}
	return true
}

// Holders returns the containers with any of the devices, "pod UID/container", sorted. A device can have
// several: an init container and a later app container, or a container of an ended pod.
func (c Checkpoint) Holders(resource string, ids []string) []string {
	var holders []string
	for _, id := range ids {
		holders = append(holders, c.holders[resource][id]...)
	}
	slices.Sort(holders)
	return slices.Compact(holders)
}

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
		name := e.containerName()
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
