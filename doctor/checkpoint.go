package doctor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
)

// checkpointFile is the device manager's checkpoint, as far as it is looked at (pkg/kubelet/cm/devicemanager/checkpoint).
type checkpointFile struct {
	Data struct {
		PodDeviceEntries []struct {
			PodUID        string
			ContainerName string
			ResourceName  string
			DeviceIDs     map[string][]string
		}
		RegisteredDevices map[string][]string // resource to device IDs
	}
}

func (e *examination) checkpointPath() string {
	return filepath.Join(e.KubeletDir, "device-plugins", "kubelet_internal_checkpoint")
}

func (e *examination) readCheckpoint() (checkpointFile, error) {
	var file checkpointFile
	content, err := os.ReadFile(e.checkpointPath())
	if err == nil {
		err = json.Unmarshal(content, &file)
	}
	return file, err
}

// registered are the resources that plugins have registered.
func (e *examination) registered() []string {
	file, _ := e.readCheckpoint() // the check itself tells of an error
	return slices.Sorted(maps.Keys(file.Data.RegisteredDevices))
}

// checkpoint looks for one device under two resources, and for devices of running pods that are gone.
func (e *examination) checkpoint() {
	file, err := e.readCheckpoint()
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		e.find(Finding{
			ID: "checkpoint", Severity: Warning,
			Summary:  "The kubelet's device checkpoint cannot be read.",
			Evidence: []string{fmt.Sprintf("%s: %v", e.checkpointPath(), err)},
			Why:      "It tells who is asking where the kubelet has no better way, and a kubelet that cannot read it forgets all allocations when it starts.",
			Fix:      []string{"drain the node, then: " + restarted("rm "+e.checkpointPath())},
		})
		return
	}
	e.offeredTwice(file.Data.RegisteredDevices)
	var gone []string
	for _, entry := range file.Data.PodDeviceEntries {
		for _, ids := range entry.DeviceIDs {
			for _, id := range ids {
				if e.isGone(id) {
					gone = append(gone, fmt.Sprintf("%s of %s, held by %s in pod %s", id, entry.ResourceName, entry.ContainerName, entry.PodUID))
				}
			}
		}
	}
	slices.Sort(gone)
	if len(gone) > 0 {
		e.find(Finding{
			ID: "device-gone", Severity: Warning,
			Summary:  fmt.Sprintf("%s given to pods and not on this machine any more.", isAre(len(gone), "device")),
			Evidence: some(append(gone, e.checkpointPath())),
			Why:      "The pods cannot be restarted in place; kubelets from 1.34 on crash on a device that vanishes from its plugin's list.",
			Fix:      []string{"delete the pods; bring the devices back (sriov_numvfs), or drain the node before VFs are changed"},
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
			Evidence: some(append(list, e.checkpointPath())),
			Why:      "The kubelet takes them for different devices and gives them to two pods.",
			Fix:      []string{"select every VF in one pool only; a name that nobody offers any more goes with the next start of the kubelet"},
		})
	}
}
