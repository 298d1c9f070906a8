// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/topology"
)

// checkpointChecks are the checks of the kubelet's checkpoint, and of the DRA driver's, on a node in the mode
// of device plugins.
var checkpointChecks = []check{
	{
		id: "checkpoint", severity: Warning, in: ofPlugins,
		summary: "The kubelet's device checkpoint cannot be read.",
		why: "Without other sources, Tandem identifies containers by the checkpoint. A kubelet that cannot read " +
			"the checkpoint forgets all allocations at its next start.",
		find: func(n *Node, f *Finding) {
			path, err := kubelet.CheckpointPath(n.KubeletDir), n.unreadCheckpoint
			if err != nil && !errors.Is(err, fs.ErrNotExist) && !n.noteDenied(path, err) {
				f.addSeen("%s: %v", path, err)
			}
			f.Fix = []string{"drain the node, then: " + restartAround("rm "+path)}
		},
	},
	{
		id: "offered-twice", severity: Error, in: ofPlugins,
		summary: "%s is offered under two names.",
		why:     "The kubelet counts them as different devices and can allocate one device to two pods.",
		fix: []string{
			"select every VF in only one pool; an unused resource name disappears at the next start " +
				"of the kubelet",
		},
		find: (*Node).findOfferedTwice,
	},
	{
		id: "device-gone", severity: Warning, in: ofPlugins,
		summary: "%s is allocated to pods and missing on this machine.",
		why: "The pods cannot be restarted in place; kubelets from 1.34 on crash on a device that vanishes " +
			"from its plugin's list.",
		fix: []string{
			"delete the pods; bring the devices back (sriov_numvfs), or drain the node before VFs are changed",
		},
		find: (*Node).findGoneDevices,
	},
	{
		id: "claims", severity: Error, in: ofPlugins,
		summary: "The devices of prepared claims are not known.",
		why: "Any device may belong to a pod with a claim, of the time when this node was in the mode of DRA: " +
			"a plugin that starts now offers none.",
		find: func(n *Node, f *Finding) {
			dir := filepath.Join(n.KubeletDir, "plugins", coordination.DRADriver)
			_, err := coordination.ReadClaimHolders(dir, n.CDIDir)
			if err != nil && !n.noteDenied(filepath.Join(dir, coordination.ClaimsFile), err) {
				f.addSeen("%v", err)
			}
			f.Fix = []string{coordination.ClaimsRemedy(dir)}
		},
	},
}

// findOfferedTwice finds devices that are registered under two resources.
func (n *Node) findOfferedTwice(f *Finding) {
	registered, resources := n.checkpoint.Registered(), map[string][]string{} // by ID
	offered := slices.Concat(n.GPUs, machine.Devices(n.VFs))
	for _, resource := range slices.Sorted(maps.Keys(registered)) {
		for _, id := range registered[resource] {
			if slices.ContainsFunc(offered, func(d model.Device) bool { return d.ID == id }) {
				resources[id] = append(resources[id], resource)
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(resources)) {
		if len(resources[id]) > 1 {
			f.addSeen("%s: %s", id, strings.Join(resources[id], ", "))
		}
	}
	n.nameCheckpoint(f)
}

// findGoneDevices finds devices of pods that the machine does not have any more.
func (n *Node) findGoneDevices(f *Finding) {
	for container, devices := range n.checkpoint.Containers() {
		for resource, ids := range devices {
			for _, id := range ids {
				address, err := topology.ParseAddress(id)
				if _, there := n.Tree.Device(address); err == nil && !there {
					f.addSeen("%s of %s, held by %s (pod UID/container)", id, resource, container)
				}
			}
		}
	}
	slices.Sort(f.Evidence)
	n.nameCheckpoint(f)
}

// nameCheckpoint counts the devices that are the evidence, and adds the checkpoint as the last.
func (n *Node) nameCheckpoint(f *Finding) {
	if len(f.Evidence) > 0 {
		f.countSeen("device")
		f.Evidence = someOf(append(f.Evidence, kubelet.CheckpointPath(n.KubeletDir)))
	}
}
