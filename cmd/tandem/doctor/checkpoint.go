// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/topology"
)

// registered are the resources that plugins have registered.
func (e *examination) registered() []string {
	checkpoint, _ := kubelet.ReadCheckpoint(e.KubeletDir) // the check itself tells of an error
	return slices.Sorted(maps.Keys(checkpoint.Registered()))
}

// checkpoint looks for one device under two resources, and for devices of running pods that are gone.
func (e *examination) checkpoint() {
	path := kubelet.CheckpointPath(e.KubeletDir)
	checkpoint, err := kubelet.ReadCheckpoint(e.KubeletDir)
	if errors.Is(err, fs.ErrNotExist) || e.denied(path, err) {
		return
	}
	if err != nil {
		e.find(Finding{
			ID: "checkpoint", Severity: Warning,
			Summary:  "The kubelet's device checkpoint cannot be read.",
			Evidence: []string{fmt.Sprintf("%s: %v", path, err)},
			Why: "It tells who is asking where the kubelet has no better way, and a kubelet that cannot read it " +
				"forgets all allocations when it starts.",
			Fix: []string{"drain the node, then: " + restarted("rm "+path)},
		})
		return
	}
	e.offeredTwice(checkpoint.Registered())
	var gone []string
	for container, devices := range checkpoint.Containers() {
		for resource, ids := range devices {
			for _, id := range ids {
				if e.isGone(id) {
					gone = append(gone, fmt.Sprintf("%s of %s, held by %s (pod UID/container)", id, resource, container))
				}
			}
		}
	}
	slices.Sort(gone)
	if len(gone) > 0 {
		e.find(Finding{
			ID: "device-gone", Severity: Warning,
			Summary:  fmt.Sprintf("%s given to pods and not on this machine any more.", isAre(len(gone), "device")),
			Evidence: some(append(gone, path)),
			Why: "The pods cannot be restarted in place; kubelets from 1.34 on crash on a device that vanishes " +
				"from its plugin's list.",
			Fix: []string{
				"delete the pods; bring the devices back (sriov_numvfs), or drain the node before VFs are changed",
			},
		})
	}
}

// isGone reports whether an ID is the address of a PCI function that the machine does not have.
func (e *examination) isGone(id string) bool {
	address, err := topology.ParseAddress(id)
	if err != nil {
		return false
	}
	_, there := e.Tree.Device(address)
	return !there
}

func (e *examination) offeredTwice(registered map[string][]string) {
	resources := map[string][]string{} // ID to resources
	for _, resource := range slices.Sorted(maps.Keys(registered)) {
		for _, id := range registered[resource] {
			if slices.Contains(e.offered(), id) {
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
	if len(list) > 0 {
		e.find(Finding{
			ID: "offered-twice", Severity: Error,
			Summary:  fmt.Sprintf("%s offered under two names.", isAre(len(list), "device")),
			Evidence: some(append(list, kubelet.CheckpointPath(e.KubeletDir))),
			Why:      "The kubelet takes them for different devices and gives them to two pods.",
			Fix: []string{
				"select every VF in one pool only; a name that nobody offers any more goes with the next start " +
					"of the kubelet",
			},
		})
	}
}
