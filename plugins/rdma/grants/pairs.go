// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/coordination/pairs"
	"github.com/tandem-k8s/tandem/plugins/container"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/plugins/rdma/sysfs"
)

// pairsMount is where a container finds its pairs.
const pairsMount = "/run/tandem/pairs.json"

// Pairs is what a container is told of its pairs.
type Pairs struct {
	File      string     // its pairs file; "" for none
	VFs       []pairs.VF // in the order in which the container lists them
	served    []pairs.Served
	variables []string
}

// pairVariables are the variables that can be asked for, and who reads them. Each says the same as the order
// of the VFs, in the words of one library. They are set once, so that they suit containers whose VFs are all
// of one resource.
var pairVariables = map[string]func(Pairs) string{
	// vLLM (vllm/v1/executor/vllm_net_devices.py): GPU=NIC by PCI address. Each worker takes the NIC of its
	// GPU, and sets for itself what VLLM_NIC_SELECTION_VARS names, before what these variables hold already:
	// so use either these two or the three below.
	"VLLM_GPU_NIC_PCIE_MAPPING": Pairs.mapping,
	"VLLM_NIC_SELECTION_VARS": func(Pairs) string {
		return "UCX_NET_DEVICES:1,NVSHMEM_HCA_LIST:1,NCCL_IB_HCA:1"
	},
	// NCCL, RCCL ("NCCL_IB_HCA" in NCCL's list of environment variables): "=" makes names exact, else mlx5_1
	// is mlx5_10 too.
	"NCCL_IB_HCA": func(p Pairs) string { return "=" + p.rdma("") },
	// UCX, and NIXL on it (UCX_NET_DEVICES in ucx_info -f): device and port.
	"UCX_NET_DEVICES": func(p Pairs) string { return p.rdma(":1") },
	// NVSHMEM (NVSHMEM_HCA_LIST in its list of environment variables): device and port.
	"NVSHMEM_HCA_LIST": func(p Pairs) string { return p.rdma(":1") },
}

// rdma lists the RDMA devices, each with a suffix.
func (p Pairs) rdma(suffix string) string {
	var names []string
	for _, vf := range p.VFs {
		if vf.RDMA != "" && !slices.Contains(names, vf.RDMA+suffix) { // replicas of an HCA have one name
			names = append(names, vf.RDMA+suffix)
		}
	}
	return strings.Join(names, ",")
}

func (p Pairs) mapping() string {
	var mapped []string
	for _, served := range p.served {
		its := func(vf pairs.VF) bool { return vf.ID == served.VF }
		if i := slices.IndexFunc(p.VFs, its); i >= 0 {
			mapped = append(mapped, served.GPU.String()+"="+p.VFs[i].Address.String())
		}
	}
	return strings.Join(mapped, ",")
}

// Pairs looks up what a container is told of its pairs, nil where its resource wants nothing of that.
func (h Host) Pairs(pool pools.Pool, order []string) *Pairs {
	wanted := pool.Resource.Tandem
	if !wanted.Pairs && len(wanted.Variables) == 0 {
		return nil
	}
	p := &Pairs{VFs: h.pairVFs(pool, order), variables: wanted.Variables}
	if wanted.Pairs {
		// The name is in the kubelet's checkpoint for as long as the container is: see coordination.
		p.File = filepath.Join(h.PairsDir, rand.Text()+".json")
	}
	return p
}

// Mount lets the container see its pairs file. Where the coordinator has not written it, it is written here,
// of VFs alone. An error means that there is no such file; the rest can be told all the same.
func (p *Pairs) Mount(written bool, edits *container.Edits) error {
	if p.File == "" {
		return nil
	}
	// A coordinator whose answer is late has written more than is known here.
	if _, err := os.Lstat(p.File); !written && err != nil {
		if err := pairs.New(p.VFs).Write(p.File); err != nil {
			return err
		}
	}
	edits.AddMounts(container.Mount{Path: pairsMount, Host: p.File, ReadOnly: true})
	return nil
}

// Tell gives a container the variables that its resource wants, once it is known which GPU each VF serves.
// What cannot be told is left out: the container has its devices all the same.
func (p *Pairs) Tell(served []pairs.Served, edits *container.Edits) {
	p.served = served
	for _, name := range p.variables {
		if value := pairVariables[name](*p); strings.Trim(value, "=") != "" {
			edits.Set(name, value)
		}
	}
}

// pairVFs looks up what a container is told of its VFs.
func (h Host) pairVFs(pool pools.Pool, order []string) []pairs.VF {
	var vfs []pairs.VF
	for _, id := range order {
		d, ok := pool.Device(id)
		if !ok {
			continue
		}
		vf := pairs.VF{ID: id, Address: d.Address, Resource: pool.Name}
		if names := sysfs.RDMADevices(h.Sys, d.Address, d.Aux); len(names) > 0 {
			vf.RDMA = names[0]
		}
		if names := h.Functions().Netdevs(d.Address, d.Aux); len(names) > 0 {
			vf.Netdev = names[0]
		}
		vfs = append(vfs, vf)
	}
	return vfs
}
