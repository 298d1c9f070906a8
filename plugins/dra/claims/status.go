// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"encoding/json"
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/plugins/rdma/grants"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/topology"
)

// deviceData is the driver's own data about a device in a claim's status. The API server accepts 10 KiB.
type deviceData struct {
	GPU  string   `json:"gpu,omitempty"` // of a bundle the list below instead
	VF   string   `json:"vf,omitempty"`
	PF   string   `json:"pf,omitempty"`
	RDMA string   `json:"rdmaDevice,omitempty"`
	GPUs []string `json:"gpus,omitempty"`
	VFs  []string `json:"vfs,omitempty"`
	// the netdev that represents the VF on the node, if the PF is in switchdev mode
	Representor string `json:"representor,omitempty"`
	// the VF that the device names, if another VF is assigned
	Token string `json:"token,omitempty"`
}

// Status returns the entries of a claim's status for its devices: the assigned GPUs and VFs, with their names
// on the node. Must be called when the claim is prepared, because CNI plugins remove the netdevs afterwards.
func (p *Preparer) Status(state State, claim Claim, now metav1.Time) []resourceapi.AllocatedDeviceStatus {
	vfs := make(map[string]pool.VF, len(state.Machine.VFs))
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

func describe(d Prepared, vfs map[string]pool.VF, representors map[string]string) []byte {
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

// representors returns the names under which a switch in the kernel, such as Open vSwitch, knows VFs of a
// claim, by address; only for PFs in switchdev mode. It reads each PF once.
func representors(functions pools.SRIOV, claim Claim, vfs map[string]pool.VF) map[string]string {
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

// network returns the netdev of a device with one VF, nil without a netdev, for example with vfio-pci.
func network(host grants.Host, d Prepared, vfs map[string]pool.VF) *resourceapi.NetworkDeviceData {
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
		InterfaceName: name,
		HardwareAddress: pools.ReadText(host.Sys,
			pools.NetdevFile(host.Sys, vf.Address, vf.Aux, name, "address")),
	}
}

func firstOrEmpty(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}
