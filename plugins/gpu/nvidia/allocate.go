// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/tandem-k8s/tandem/plugins/container"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/topology"
)

const (
	visibleDevices  = "NVIDIA_VISIBLE_DEVICES"
	visibleChannels = "NVIDIA_IMEX_CHANNELS"
	volumesRoot     = "/var/run/nvidia-container-devices"
	nothingFile     = "/dev/null"

	cdiWriter = "nvidia-device-plugin_" // of an annotation's key
)

// controlNodes are the device nodes for all GPUs together. Absent nodes are omitted.
var controlNodes = []string{"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset"}

// Refuse rejects unknown IDs and, if configured, more than one replica for a container.
func (b *Backend) Refuse(resource string, devices []gpu.Device, unknown []string) error {
	if len(unknown) > 0 {
		return fmt.Errorf("invalid allocation request for %q: invalid request: unknown device: %s",
			resource, unknown[0])
	}
	replica := slices.ContainsFunc(devices, func(d gpu.Device) bool {
		_, is := topology.CutReplica(d.ID)
		return is
	})
	if b.config.Sharing.RefuseMany && replica && len(devices) > 1 {
		return fmt.Errorf("invalid allocation request for %q: invalid request: maximum request size for shared "+
			"resources is 1; found %d", resource, len(devices))
	}
	return nil
}

// Edits returns the edits of a container for these devices, for all configured strategies.
func (b *Backend) Edits(devices []gpu.Device) (edits container.Edits) {
	ids := b.runtimeIDs(devices)
	has := func(strategy string) bool { return slices.Contains(b.config.DeviceList, strategy) }
	some, all := b.config.CDI()
	if some {
		edits.Named = container.Named{Field: has(listCDICRI), Devices: b.namedDevices(ids)}
	}
	if has(listCDIAnnotations) {
		edits.Named.Annotation = b.config.AnnotationPrefix + cdiWriter + uuid.NewString()
	}
	for _, mode := range b.config.enabledModes() {
		edits.Set("NVIDIA_"+strings.ToUpper(mode), "enabled")
	}
	if all {
		if b.config.forClaims {
			edits.Set(visibleDevices, "void")
		}
		return edits
	}
	if has(listEnvVar) {
		edits.Set(visibleDevices, strings.Join(ids, ","))
		if len(b.channels) > 0 {
			edits.Set(visibleChannels, strings.Join(channelIDs(b.channels), ","))
		}
	}
	if has(listVolumeMounts) {
		edits.Set(visibleDevices, volumesRoot)
		for _, id := range ids {
			edits.AddMounts(container.Mount{Path: path.Join(volumesRoot, id), Host: nothingFile})
		}
		for _, id := range channelIDs(b.channels) {
			edits.AddMounts(container.Mount{Path: path.Join(volumesRoot, "imex", id), Host: nothingFile})
		}
	}
	if b.config.PassDeviceSpecs {
		edits.AddNodes(b.deviceNodes(devices)...)
	}
	return edits
}

// runtimeIDs returns the IDs of devices for the container runtime, once for all replicas of a device.
func (b *Backend) runtimeIDs(devices []gpu.Device) (ids []string) {
	for _, d := range devices {
		id, _ := topology.CutReplica(d.ID)
		if b.config.DeviceID == idIndex {
			id = d.Index
		}
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// namedDevices returns the CDI devices of a container with devices.
func (b *Backend) namedDevices(ids []string) (names []string) {
	for _, id := range ids {
		names = append(names, qualifiedName(cdiGPU, id))
	}
	for _, id := range channelIDs(b.channels) {
		names = append(names, qualifiedName(cdiChannel, id))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return append(names, b.extras...)
}

// deviceNodes returns the device nodes. Replicas and MIG devices of one GPU share nodes.
func (b *Backend) deviceNodes(devices []gpu.Device) (nodes []container.Node) {
	var paths []string
	for _, node := range controlNodes {
		if container.HasNode(os.DirFS(b.machine.DevRoot), node) {
			paths = append(paths, "/dev/"+node)
		}
	}
	for _, d := range devices {
		paths = append(paths, d.Nodes...)
	}
	for _, c := range b.channels {
		paths = append(paths, c.path())
	}
	for _, node := range paths {
		nodes = append(nodes, container.Node{Path: node, Host: path.Join(b.config.HostDevRoot, node)})
	}
	return nodes
}

// written is a specification that was written to a file.
type written struct {
	asked []byte // the specification before its file was saved with additions
	has   []byte // the content of the file
}

// isIntact reports whether the file is unchanged.
func (w written) isIntact(file string) bool {
	now, err := os.ReadFile(file)
	return err == nil && bytes.Equal(now, w.has)
}

const (
	cdiVendor  = "k8s.device-plugin.nvidia.com"
	cdiGPU     = "gpu"
	cdiChannel = "imex-channel"
)

// qualifiedName returns the full name of a CDI device.
func qualifiedName(class, name string) string { return cdiVendor + "/" + class + "=" + name }

// specs describes the CDI specifications to write.
type specs struct {
	*Backend
	uuids    []string           // of the responsive GPUs and MIG devices with nodes
	complete bool               // all GPUs and MIG devices answer and have nodes
	written  map[string]written // set to the current files, by path
}

// nodes are device nodes for containers, by their path there, and whether this machine has them. Nothing
// makes the nodes of a loaded driver until somebody runs nvidia-modprobe.
type nodes struct {
	// roots are folders of this process that can have the nodes; none if the container's runtime finds the nodes
	roots []fs.FS
	there map[string]bool
	// lack are the UUIDs of GPUs and MIG devices without their nodes, which no specification can have
	lack map[string]bool
}

// newNodes returns no nodes yet. CDI specifications have the nodes of the driver; an answer has those of the
// host, which a pod sees in its own folder or in that of the driver.
func newNodes(config *Config, devRoot string) nodes {
	n := nodes{there: map[string]bool{}, lack: map[string]bool{}}
	ofDriver := os.DirFS(path.Join(driverDevRoot(config), "dev"))
	if cdi, _ := config.CDI(); cdi {
		n.roots = []fs.FS{ofDriver}
	} else if config.PassDeviceSpecs {
		n.roots = []fs.FS{os.DirFS(devRoot), ofDriver}
		if !n.isThere("/dev/" + controlNodes[0]) {
			n.roots = nil // this pod does not see the host's nodes
		}
	}
	for _, node := range controlNodes {
		n.lookFor("/dev/" + node)
	}
	return n
}

// lookFor looks for a node, and reports whether it is there or nobody needs it.
func (n nodes) lookFor(node string) bool {
	if len(n.roots) == 0 {
		return true
	}
	n.there[node] = n.isThere(node)
	return n.there[node]
}

func (n nodes) isThere(node string) bool {
	return slices.ContainsFunc(n.roots, func(root fs.FS) bool { return container.HasNode(root, node) })
}

// findLacking returns why a device with these nodes cannot be given to a container; "" if it can.
func (n nodes) findLacking(uuid string, paths []string) string {
	for _, node := range paths {
		if !n.lookFor(node) {
			n.lack[uuid] = true
			return "no device node " + node + ": load the kernel module nvidia, and make its nodes (nvidia-modprobe)"
		}
	}
	return ""
}

// driverDevRoot returns the root of the driver's device nodes for this process: the driver root, unless it
// certainly contains no device nodes. Of a folder that nobody can read the nodes are missing.
func driverDevRoot(config *Config) string {
	info, err := os.Stat(path.Join(config.ContainerDriverRoot, "dev"))
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
		return "/"
	}
	return config.ContainerDriverRoot
}

const channelsDir = "nvidia-caps-imex-channels"

// channel is an IMEX channel, through which GPUs of different nodes share memory.
type channel struct {
	id       string
	hostPath string // path for this process
}

func (c channel) path() string { return path.Join("/dev", channelsDir, "channel"+c.id) }

func channelIDs(channels []channel) []string {
	var ids []string
	for _, c := range channels {
		ids = append(ids, c.id)
	}
	return ids
}

// findChannels finds the configured channels, below the driver root and below devRoot. Missing channels are
// omitted, or an error if required.
func findChannels(config *Config, devRoot string) ([]channel, error) {
	var found []channel
	for _, number := range config.IMEXChannels {
		c := channel{id: fmt.Sprint(number)}
		node := path.Join(channelsDir, "channel"+c.id)
		c.hostPath = path.Join(config.ContainerDriverRoot, "dev", node)
		err := isCharDevice(c.hostPath)
		if err != nil {
			c.hostPath = path.Join(devRoot, node)
			err = isCharDevice(c.hostPath)
		}
		if err == nil {
			found = append(found, c)
			continue
		}
		if config.IMEXRequired {
			return nil, fmt.Errorf("find IMEX channel %s: %w: make it (nvidia-modprobe -i 0:1), "+
				"or set imex.required to false", c.id, err)
		}
		config.Warnings = append(config.Warnings, fmt.Sprintf("IMEX channel %s is left out: %v", c.id, err))
	}
	return found, nil
}

func isCharDevice(path string) error {
	info, err := os.Stat(path)
	if err == nil && info.Mode()&fs.ModeCharDevice == 0 {
		err = errors.New(path + " is not a character device")
	}
	return err
}
