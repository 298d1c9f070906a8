// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"

	"github.com/tandem-k8s/tandem/plugins/container"
	"github.com/tandem-k8s/tandem/plugins/gpu/nvidia/settings"
)

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
func newNodes(config *settings.Config, devRoot string) nodes {
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
		n.has("/dev/" + node)
	}
	return n
}

// has looks for a node, and reports whether it is there or nobody needs it.
func (n nodes) has(node string) bool {
	if len(n.roots) == 0 {
		return true
	}
	n.there[node] = n.isThere(node)
	return n.there[node]
}

func (n nodes) isThere(node string) bool {
	return slices.ContainsFunc(n.roots, func(root fs.FS) bool { return container.HasNode(root, node) })
}

// changed reports whether a node has come or gone.
func (n nodes) changed() bool {
	for node, was := range n.there {
		if n.isThere(node) != was {
			return true
		}
	}
	return false
}

// lacking returns why a device with these nodes cannot be given to a container; "" if it can.
func (n nodes) lacking(uuid string, paths []string) string {
	for _, node := range paths {
		if !n.has(node) {
			n.lack[uuid] = true
			return "no device node " + node + ": load the kernel module nvidia, and make its nodes (nvidia-modprobe)"
		}
	}
	return ""
}

// driverDevRoot returns the root of the driver's device nodes for this process: the driver root, unless it
// certainly contains no device nodes. Of a folder that nobody can read the nodes are missing.
func driverDevRoot(config *settings.Config) string {
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
func findChannels(config *settings.Config, devRoot string) ([]channel, error) {
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
