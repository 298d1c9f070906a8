// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/coordination/pairs"
	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/plugins/container"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
)

// Pairs is the description of a container's pairs, for the container.
type Pairs struct {
	File      string // its pairs file; "" for none
	disk      system.Disk
	VFs       []pairs.VF // in the container's order
	served    []pairs.Served
	variables []string
}

// pairVariables are the supported variables, with their readers. Each contains the order of the VFs in the
// format of one library. They are set once, and so suit containers whose VFs are all of one resource.
var pairVariables = map[string]func(Pairs) string{
	// vLLM (vllm/v1/executor/vllm_net_devices.py): GPU=NIC by PCI address. Each worker selects the NIC of its
	// GPU, and sets the variables in VLLM_NIC_SELECTION_VARS for itself, before their existing values: use
	// either these two variables or the three below.
	"VLLM_GPU_NIC_PCIE_MAPPING": Pairs.mapGPUs,
	"VLLM_NIC_SELECTION_VARS": func(Pairs) string {
		return "UCX_NET_DEVICES:1,NVSHMEM_HCA_LIST:1,NCCL_IB_HCA:1"
	},
	// NCCL, RCCL ("NCCL_IB_HCA" in NCCL's list of environment variables): "=" makes names exact, else mlx5_1
	// matches mlx5_10 too.
	"NCCL_IB_HCA": func(p Pairs) string { return "=" + p.listRDMA("") },
	// UCX, and NIXL on UCX (UCX_NET_DEVICES in ucx_info -f): device and port.
	"UCX_NET_DEVICES": func(p Pairs) string { return p.listRDMA(":1") },
	// NVSHMEM (NVSHMEM_HCA_LIST in its list of environment variables): device and port.
	"NVSHMEM_HCA_LIST": func(p Pairs) string { return p.listRDMA(":1") },
}

// listRDMA lists the RDMA devices, each with a suffix.
func (p Pairs) listRDMA(suffix string) string {
	var names []string
	for _, vf := range p.VFs {
		if vf.RDMA != "" && !slices.Contains(names, vf.RDMA+suffix) { // replicas of an HCA have one name
			names = append(names, vf.RDMA+suffix)
		}
	}
	return strings.Join(names, ",")
}

func (p Pairs) mapGPUs() string {
	var mapped []string
	for _, served := range p.served {
		its := func(vf pairs.VF) bool { return vf.ID == served.VF }
		if i := slices.IndexFunc(p.VFs, its); i >= 0 {
			mapped = append(mapped, served.GPU.String()+"="+p.VFs[i].Address.String())
		}
	}
	return strings.Join(mapped, ",")
}

// Pairs returns the description of the container's pairs, or nil if its resource does not request one.
func (h Host) Pairs(pool pools.Pool, order []string) *Pairs {
	wanted := pool.Resource.Tandem
	if !wanted.Pairs && len(wanted.Variables) == 0 {
		return nil
	}
	p := &Pairs{disk: h.Disk, VFs: h.pairVFs(pool, order), variables: wanted.Variables}
	if wanted.Pairs {
		// The name is in the kubelet's checkpoint for as long as the container is: see coordination.
		p.File = filepath.Join(h.PairsDir, rand.Text()+".json")
	}
	return p
}

// Mount mounts the pairs file in the container. If the coordinator has not written the file, Mount writes it
// with the VFs alone. An error means that the file is missing; the variables can still be set.
func (p *Pairs) Mount(written bool, edits *container.Edits) error {
	if p.File == "" {
		return nil
	}
	// The file of a coordinator that answered late contains more.
	if _, err := os.Lstat(p.File); !written && err != nil {
		if err := pairs.New(p.VFs).Write(p.disk, p.File); err != nil {
			return err
		}
	}
	edits.AddMounts(container.Mount{Path: pairs.Mount, Host: p.File, ReadOnly: true})
	return nil
}

// Tell adds the variables that the resource requests, given the GPU that each VF serves. Unknown values are
// omitted, because the container has its devices in any case.
func (p *Pairs) Tell(served []pairs.Served, edits *container.Edits) {
	p.served = served
	for _, name := range p.variables {
		if value := pairVariables[name](*p); strings.Trim(value, "=") != "" {
			edits.Set(name, value)
		}
	}
}

// pairVFs returns the description of a container's VFs.
func (h Host) pairVFs(pool pools.Pool, order []string) []pairs.VF {
	var vfs []pairs.VF
	for _, id := range order {
		d, ok := pool.Device(id)
		if !ok {
			continue
		}
		vf := pairs.VF{ID: id, Address: d.Address, Resource: pool.Name}
		if names := pools.RDMADevices(h.Sys, d.Address, d.Aux); len(names) > 0 {
			vf.RDMA = names[0]
		}
		if names := h.Functions().Netdevs(d.Address, d.Aux); len(names) > 0 {
			vf.Netdev = names[0]
		}
		vfs = append(vfs, vf)
	}
	return vfs
}

// deviceInfo describes a device for Multus (the device-info specification of k8snetworkplumbingwg; type
// DeviceInfo in network-attachment-definition-client, pkg/apis/k8s.cni.cncf.io/v1/types.go).
type deviceInfo struct {
	Type    string    `json:"type"`
	Version string    `json:"version"`
	PCI     *pciInfo  `json:"pci,omitempty"`
	VDPA    *vdpaInfo `json:"vdpa,omitempty"`
}

type pciInfo struct {
	Address string `json:"pci-address"`
	RDMA    string `json:"rdma-device,omitempty"` // names, separated by commas
}

type vdpaInfo struct {
	Parent  string `json:"parent-device"` // the vDPA device's name
	Driver  string `json:"driver,omitempty"`
	Path    string `json:"path,omitempty"`
	Address string `json:"pci-address"`
}

func newDeviceInfo(d pools.Device, g *Grant) deviceInfo {
	info := deviceInfo{Version: "1.1.0"}
	if g.VDPA == nil {
		info.Type, info.PCI = "pci", &pciInfo{Address: d.ID, RDMA: strings.Join(g.RDMA, ",")}
		return info
	}
	info.Type, info.VDPA = "vdpa", &vdpaInfo{Parent: g.VDPA.Name, Driver: g.VDPA.Kind, Address: d.ID}
	if g.VDPA.Kind == "vhost" {
		info.VDPA.Path = g.VDPA.Node
	}
	return info
}

// DevinfoPath returns the path at which Multus expects the device-info file of a device (getDPDeviceInfoPath
// in network-attachment-definition-client, pkg/utils/cniconfig.go).
func (h Host) DevinfoPath(resource, id string) string {
	name := strings.ReplaceAll(resource, "/", "-") + "-" + strings.ReplaceAll(id, "/", "-") + "-device.json"
	return filepath.Join(h.DevinfoDir, name)
}

// RestoreDevinfo writes the missing files of a pool's healthy devices: running pods refer to the files, a
// boot removes them, and the kubelet does not allocate the devices again. It stops at the first error.
func (h Host) RestoreDevinfo(pool pools.Pool) error {
	if pool.Resource.DeviceType != pools.NetDevice {
		return nil
	}
	for _, d := range pool.Devices {
		if _, err := os.Stat(h.DevinfoPath(pool.Name, d.ID)); err == nil || d.Fault != "" {
			continue
		}
		if err := h.WriteDevinfo(pool, d, h.Grant(d, pool.Resource)); err != nil {
			return err
		}
	}
	return nil
}

// TidyDevinfo removes files that a power failure has damaged, and temporary files of killed processes. Must
// be called at the start, before RestoreDevinfo.
func (h Host) TidyDevinfo(pool pools.Pool) error {
	problems := []error{h.Disk.RemoveAbandoned(h.DevinfoDir)}
	for _, d := range pool.Devices {
		name := h.DevinfoPath(pool.Name, d.ID)
		if content, err := os.ReadFile(name); err == nil && !json.Valid(content) {
			problems = append(problems, h.Disk.Remove(name))
		}
	}
	return errors.Join(problems...)
}

// WriteDevinfo writes a device's file, for resources that Multus uses, before Allocate returns. The
// replacement is atomic, so that readers never see a partial file.
//
// The stock plugin removes the files of all its devices when it starts and stops, even those of running pods,
// although Multus reads the files again when a container restarts. Tandem keeps a file until the next
// allocation of the device, and creates all files at the start, because a boot removes the folder but not the
// pods. Nothing reads the file of a free device.
func (h Host) WriteDevinfo(pool pools.Pool, d pools.Device, g *Grant) error {
	if pool.Resource.DeviceType != pools.NetDevice {
		return nil
	}
	content, err := json.Marshal(newDeviceInfo(d, g))
	if err == nil {
		err = h.Disk.Update(h.DevinfoPath(pool.Name, d.ID), content, 0o444, 0o755)
	}
	if err != nil {
		return fmt.Errorf("write device-info of %s: %w", d.ID, err)
	}
	return nil
}
