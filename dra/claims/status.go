// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"encoding/json"
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tandem-k8s/tandem/dra/inventory"
	"github.com/tandem-k8s/tandem/dra/pool"
	"github.com/tandem-k8s/tandem/plugins/rdma/grants"
	"github.com/tandem-k8s/tandem/plugins/rdma/sysfs"
	"github.com/tandem-k8s/tandem/topology"
)

// deviceData is what a claim's status says of a device in the driver's own words. The API server takes 10 KiB
// of it.
type deviceData struct {
	GPU  string   `json:"gpu,omitempty"` // of a bundle the list below instead
	VF   string   `json:"vf,omitempty"`
	PF   string   `json:"pf,omitempty"`
	RDMA string   `json:"rdmaDevice,omitempty"`
	GPUs []string `json:"gpus,omitempty"`
	VFs  []string `json:"vfs,omitempty"`
	// the netdev that stands for the VF on the node, where the PF is in switchdev mode
	Representor string `json:"representor,omitempty"`
	// the VF that the device names, where another one is handed out
	Token string `json:"token,omitempty"`
}

// Status is what a claim's status says of its devices: what was handed out for each, and how the node calls
// it. To be asked for when the claim is prepared, for then the CNI plugins take the netdevs away.
func (p *Preparer) Status(state State, claim Claim, now metav1.Time) []resourceapi.AllocatedDeviceStatus {
	vfs := make(map[string]inventory.VF, len(state.Machine.VFs))
	for _, vf := range state.Machine.VFs {
		vfs[vf.ID] = vf
	}
	functions := p.Host.Functions()
	linked := representors(functions, claim, vfs)
	statuses := make([]resourceapi.AllocatedDeviceStatus, 0, len(claim.Devices))
	for _, d := range claim.Devices {
		statuses = append(statuses, resourceapi.AllocatedDeviceStatus{
			Driver: pool.Driver, Pool: d.Pool, Device: d.Device,
			Conditions: []metav1.Condition{{
				Type: "Ready", Status: metav1.ConditionTrue, Reason: "Prepared", LastTransitionTime: now,
				Message: "prepared on its node",
			}},
			Data:        &runtime.RawExtension{Raw: describe(d, vfs, linked)},
			NetworkData: network(p.Host, d, vfs),
		})
	}
	return statuses
}

func describe(d Prepared, vfs map[string]inventory.VF, representors map[string]string) []byte {
	data := deviceData{Token: d.Token}
	if len(d.GPUs) > 1 || len(d.VFs) > 1 {
		data.GPUs, data.VFs = d.GPUs, d.VFs
	} else {
		data.GPU, data.VF = firstOrEmpty(d.GPUs), firstOrEmpty(d.VFs)
		if vf, ok := vfs[data.VF]; ok {
			data.RDMA = vf.RDMA
			data.PF = vf.Function().String()
			data.Representor = representors[vf.Address.String()]
		}
	}
	raw, err := json.Marshal(data)
	if err != nil {
		return nil // strings can be encoded
	}
	return raw
}

// representors are what a switch in the kernel, such as Open vSwitch, knows VFs of a claim by, by their
// addresses; of PFs in switchdev mode alone. Each PF is looked at once.
func representors(functions sysfs.SRIOV, claim Claim, vfs map[string]inventory.VF) map[string]string {
	all := map[string]string{}
	seen := map[topology.Address]bool{}
	for _, d := range claim.Devices {
		pf := vfs[firstOrEmpty(d.VFs)].PF
		if pf != (topology.Address{}) && !seen[pf] {
			seen[pf] = true
			maps.Copy(all, functions.Representors(pf))
		}
	}
	return all
}

// network is the netdev of a device with one VF; nil where it has none, as one that is bound to vfio-pci.
func network(host grants.Host, d Prepared, vfs map[string]inventory.VF) *resourceapi.NetworkDeviceData {
	vf, ok := vfs[firstOrEmpty(d.VFs)]
	if !ok || len(d.VFs) != 1 {
		return nil
	}
	names := host.Functions().Netdevs(vf.Address, vf.Aux)
	if len(names) == 0 {
		return nil
	}
	name := slices.Min(names)
	return &resourceapi.NetworkDeviceData{
		InterfaceName: name, HardwareAddress: sysfs.Text(host.Sys, vf.File("net", name, "address")),
	}
}

func firstOrEmpty(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}
