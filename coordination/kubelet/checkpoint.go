package kubelet

import (
	"bytes"
	"encoding/json"
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
)

// Checkpoint is the device manager's record of who holds which devices, as the kubelet last wrote it to disk.
// It is written when all resources of a container have been allocated, before the next container's turn
// (allocateContainerResources in pkg/kubelet/cm/devicemanager/manager.go), and when a plugin's device list
// changes. Devices that have become free stay in it until the next write. Reading it asks nothing of the
// kubelet.
type Checkpoint struct {
	// Identity tells this record from those that the kubelet wrote before and writes later.
	Identity Identity

	holders    map[string]map[string][]string // resource → device ID → "pod UID/container"
	containers map[string]Devices             // "pod UID/container" → its devices
	// resource → device ID → NUMA node, of the devices that are held and have one
	nodes   map[string]map[string]int
	healthy map[string][]string // resource → device IDs
}

// Identity tells a file from the one that takes its place: the kubelet replaces its checkpoint as a whole.
// The time alone is too coarse, and file systems use inodes again. The zero value is that of no file.
type Identity struct {
	Inode    uint64
	Modified int64 // nanoseconds since 1970
	Size     int64
	Sum      uint32 // CRC-32 of the content
}

// identify is the identity of a file that is open, with its content.
func identify(file *os.File, content []byte) (Identity, error) {
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

// checkpointFile is the file's format, as far as it matters here
// (pkg/kubelet/cm/devicemanager/checkpoint/checkpoint.go). Its entries are entry, or more of what the kubelet
// wrote.
type checkpointFile[Entry any] struct {
	Data struct {
		PodDeviceEntries  []Entry
		RegisteredDevices map[string][]string // the healthy ones
	}
}

// entry is what a container holds of a resource.
type entry struct {
	PodUID        string
	ContainerName string
	ResourceName  string
	DeviceIDs     map[string][]string // by NUMA node, "-1" for none
}

func (e entry) container() string { return e.PodUID + "/" + e.ContainerName }

// CheckpointPath returns where the checkpoint is below a kubelet folder (/var/lib/kubelet).
func CheckpointPath(kubeletDir string) string {
	return filepath.Join(kubeletDir, "device-plugins", "kubelet_internal_checkpoint")
}

// ReadCheckpoint reads the checkpoint below a kubelet folder. The kubelet replaces the file as a whole,
// so what is read is never half of one.
func ReadCheckpoint(kubeletDir string) (Checkpoint, error) {
	return NewCheckpointReader(kubeletDir).Read()
}

// CheckpointReader reads the checkpoint below a kubelet folder again and again, and parses it where it has
// changed: not while the kubelet is asking for one container. It is for one reader at a time, who changes
// nothing of what it returns.
type CheckpointReader struct {
	dir     string
	content []byte
	parsed  Checkpoint
}

// NewCheckpointReader makes a reader for a kubelet folder (/var/lib/kubelet).
func NewCheckpointReader(kubeletDir string) *CheckpointReader {
	return &CheckpointReader{dir: kubeletDir}
}

// Read returns the same as [ReadCheckpoint].
func (r *CheckpointReader) Read() (Checkpoint, error) {
	file, err := os.Open(CheckpointPath(r.dir))
	if err != nil {
		return Checkpoint{}, fmt.Errorf("read the kubelet's device checkpoint: %w", err)
	}
	defer file.Close()
	content, err := io.ReadAll(file)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("read the kubelet's device checkpoint: %w", err)
	}
	identity, err := identify(file, content)
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

func decodeCheckpoint[Entry any](content []byte) (file checkpointFile[Entry], err error) {
	if err := json.Unmarshal(content, &file); err != nil {
		return file, fmt.Errorf("parse the kubelet's device checkpoint: %w", err)
	}
	return file, nil
}

func parseCheckpoint(content []byte) (Checkpoint, error) {
	file, err := decodeCheckpoint[entry](content)
	if err != nil {
		return Checkpoint{}, err
	}
	c := Checkpoint{
		holders:    map[string]map[string][]string{},
		containers: map[string]Devices{},
		nodes:      map[string]map[string]int{},
		healthy:    file.Data.RegisteredDevices,
	}
	for _, e := range file.Data.PodDeviceEntries {
		container := e.container()
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

// Containers are the devices by the containers that hold them, "pod UID/container". They are not to be
// changed.
func (c Checkpoint) Containers() map[string]Devices { return c.containers }

// Registered lists the healthy devices of every resource that a plugin has registered.
func (c Checkpoint) Registered() map[string][]string { return c.healthy }

// Listed is every device of a resource that the kubelet can have in mind: the healthy ones of the plugin's
// last list and all that are held. The value is the NUMA node, -1 where the checkpoint does not tell it.
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

// HeldBy reports whether a container of a pod holds a device; of any pod where the UID is "".
func (c Checkpoint) HeldBy(uid, resource, id string) bool {
	return slices.ContainsFunc(c.holders[resource][id], func(holder string) bool {
		pod, _, _ := strings.Cut(holder, "/")
		return uid == "" || uid == pod
	})
}

// Has reports whether a container of some name holds all the devices, whichever pod it is of.
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

// Holders lists the containers that the checkpoint shows with any of the devices, "pod UID/container",
// sorted. More than one can be shown with a device: an init container and the app container after it, or a
// pod that is gone.
func (c Checkpoint) Holders(resource string, ids []string) []string {
	var holders []string
	for _, id := range ids {
		holders = append(holders, c.holders[resource][id]...)
	}
	slices.Sort(holders)
	return slices.Compact(holders)
}
