// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/topology"
)

// checkpoint is the kubelet's device checkpoint beside the devices of the machine.
type checkpoint struct {
	kubelet.Checkpoint
	path    string
	damage  string
	tree    *topology.Tree
	offered []Device
}

func (n Node) newCheckpoint(a *access, read kubelet.Checkpoint, err error) checkpoint {
	c := checkpoint{
		Checkpoint: read, path: kubelet.CheckpointPath(n.KubeletDir), tree: n.Tree,
		offered: slices.Concat(n.GPUs, n.VFs),
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !a.denied(c.path, err) {
		c.damage = fmt.Sprintf("%s: %v", c.path, err)
	}
	return c
}

// damagedCheckpoint finds a checkpoint that cannot be read.
func damagedCheckpoint(c checkpoint) []Finding {
	return findWhen(c.damage != "", Finding{
		ID: "checkpoint", Severity: Warning,
		Summary:  "The kubelet's device checkpoint cannot be read.",
		Evidence: []string{c.damage},
		Why: "Without other sources, Tandem identifies containers by the checkpoint. A kubelet that cannot read " +
			"the checkpoint forgets all allocations at its next start.",
		Fix: []string{"drain the node, then: " + restarted("rm "+c.path)},
	})
}

// offeredTwice finds devices that are registered under two resources.
func offeredTwice(c checkpoint) []Finding {
	resources := map[string][]string{} // by ID
	for _, resource := range slices.Sorted(maps.Keys(c.Registered())) {
		for _, id := range c.Registered()[resource] {
			if slices.ContainsFunc(c.offered, func(d Device) bool { return d.ID == id }) {
				resources[id] = append(resources[id], resource)
			}
		}
	}
	var list []string
	for _, id := range slices.Sorted(maps.Keys(resources)) {
		if len(resources[id]) > 1 {
			list = append(list, id+": "+strings.Join(resources[id], ", "))
		}
	}
	return c.finding(list, Finding{
		ID: "offered-twice", Severity: Error,
		Summary: fmt.Sprintf("%s offered under two names.", cli.CountAre(len(list), "device")),
		Why:     "The kubelet counts them as different devices and can allocate one device to two pods.",
		Fix: []string{
			"select every VF in only one pool; an unused resource name disappears at the next start " +
				"of the kubelet",
		},
	})
}

// goneDevices finds devices of pods that the machine does not have any more.
func goneDevices(c checkpoint) []Finding {
	var list []string
	for container, devices := range c.Containers() {
		for resource, ids := range devices {
			for _, id := range ids {
				if c.isGone(id) {
					list = append(list, fmt.Sprintf("%s of %s, held by %s (pod UID/container)", id, resource, container))
				}
			}
		}
	}
	slices.Sort(list)
	return c.finding(list, Finding{
		ID: "device-gone", Severity: Warning,
		Summary: fmt.Sprintf("%s allocated to pods and missing on this machine.",
			cli.CountAre(len(list), "device")),
		Why: "The pods cannot be restarted in place; kubelets from 1.34 on crash on a device that vanishes " +
			"from its plugin's list.",
		Fix: []string{
			"delete the pods; bring the devices back (sriov_numvfs), or drain the node before VFs are changed",
		},
	})
}

// finding returns a finding about devices, with the checkpoint as the last evidence; none without devices.
func (c checkpoint) finding(devices []string, f Finding) []Finding {
	if len(devices) == 0 {
		return nil
	}
	return findSome(append(devices, c.path), f)
}

// isGone reports whether an ID is the address of a PCI function that the machine does not have.
func (c checkpoint) isGone(id string) bool {
	address, err := topology.ParseAddress(id)
	if err != nil {
		return false
	}
	_, there := c.tree.Device(address)
	return !there
}
