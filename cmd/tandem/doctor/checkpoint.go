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

// damagedCheckpoint finds a checkpoint that cannot be read.
func damagedCheckpoint(n *Node) []Finding {
	path := kubelet.CheckpointPath(n.KubeletDir)
	damage := ""
	if err := n.unreadCheckpoint; err != nil && !errors.Is(err, fs.ErrNotExist) && !n.noteDenied(path, err) {
		damage = fmt.Sprintf("%s: %v", path, err)
	}
	return []Finding{{
		ID: "checkpoint", Severity: Warning,
		Summary:  "The kubelet's device checkpoint cannot be read.",
		Evidence: evidenceOf(damage),
		Why: "Without other sources, Tandem identifies containers by the checkpoint. A kubelet that cannot read " +
			"the checkpoint forgets all allocations at its next start.",
		Fix: []string{"drain the node, then: " + restartAround("rm "+path)},
	}}
}

// offeredTwice finds devices that are registered under two resources.
func offeredTwice(n *Node) []Finding {
	registered, resources := n.checkpoint.Registered(), map[string][]string{} // by ID
	for _, resource := range slices.Sorted(maps.Keys(registered)) {
		for _, id := range registered[resource] {
			if slices.ContainsFunc(slices.Concat(n.GPUs, n.VFs), func(d Device) bool { return d.ID == id }) {
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
	return []Finding{{
		ID: "offered-twice", Severity: Error,
		Summary:  fmt.Sprintf("%s offered under two names.", cli.CountAre(len(list), "device")),
		Evidence: n.inCheckpoint(list),
		Why:      "The kubelet counts them as different devices and can allocate one device to two pods.",
		Fix: []string{
			"select every VF in only one pool; an unused resource name disappears at the next start " +
				"of the kubelet",
		},
	}}
}

// goneDevices finds devices of pods that the machine does not have any more.
func goneDevices(n *Node) []Finding {
	var list []string
	for container, devices := range n.checkpoint.Containers() {
		for resource, ids := range devices {
			for _, id := range ids {
				if n.isGone(id) {
					list = append(list, fmt.Sprintf("%s of %s, held by %s (pod UID/container)", id, resource, container))
				}
			}
		}
	}
	slices.Sort(list)
	return []Finding{{
		ID: "device-gone", Severity: Warning,
		Summary: fmt.Sprintf("%s allocated to pods and missing on this machine.",
			cli.CountAre(len(list), "device")),
		Evidence: n.inCheckpoint(list),
		Why: "The pods cannot be restarted in place; kubelets from 1.34 on crash on a device that vanishes " +
			"from its plugin's list.",
		Fix: []string{
			"delete the pods; bring the devices back (sriov_numvfs), or drain the node before VFs are changed",
		},
	}}
}

// inCheckpoint returns devices as evidence, with the checkpoint as the last; none without devices.
func (n *Node) inCheckpoint(devices []string) []string {
	if len(devices) == 0 {
		return nil
	}
	return someOf(append(devices, kubelet.CheckpointPath(n.KubeletDir)))
}

// isGone reports whether an ID is the address of a PCI function that the machine does not have.
func (n *Node) isGone(id string) bool {
	address, err := topology.ParseAddress(id)
	if err != nil {
		return false
	}
	_, there := n.Tree.Device(address)
	return !there
}
