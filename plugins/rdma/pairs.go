package rdma

import (
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/coordination"
)

// Tandem are the keys of a resource that the stock plugin does not have, and ignores: what a container is told of its pairs.
// All of it is opt-in, and this plugin alone tells it: of equal names from two plugins the kubelet keeps either.
type Tandem struct {
	Pairs     bool     `json:"pairs"`     // mount /run/tandem/pairs.json, a coordination.PairsFile
	Alias     bool     `json:"alias"`     // PCIDEVICE_… a second time under a name that shells can read: other characters than letters and digits are _
	Variables []string `json:"variables"` // names of pairVariables
}

// pairsMount is where a container finds its pairs.
const pairsMount = "/run/tandem/pairs.json"

// pairing is what variables are made of.
type pairing struct {
	vfs    []coordination.PairVF // in the order in which the container lists them
	served []coordination.Served
}

// pairVariables are the variables that can be asked for, and who reads them. Each says the same as the order of the VFs, in the words of
// one library. They are set once, so that they suit containers whose VFs are all of one resource.
var pairVariables = map[string]func(pairing) string{
	// vLLM (vllm/v1/executor/vllm_net_devices.py): GPU=NIC by PCI address. Each worker takes the NIC of its GPU, and sets for
	// itself what VLLM_NIC_SELECTION_VARS names, before what these variables hold already: so use either these two or the three below.
	"VLLM_GPU_NIC_PCIE_MAPPING": pairing.mapping,
	"VLLM_NIC_SELECTION_VARS":   func(pairing) string { return "UCX_NET_DEVICES:1,NVSHMEM_HCA_LIST:1,NCCL_IB_HCA:1" },
	// NCCL, RCCL ("NCCL_IB_HCA" in NCCL's list of environment variables): "=" makes names exact, else mlx5_1 is mlx5_10 too.
	"NCCL_IB_HCA": func(p pairing) string { return "=" + p.rdma("") },
	// UCX, and NIXL on it (UCX_NET_DEVICES in ucx_info -f): device and port.
	"UCX_NET_DEVICES": func(p pairing) string { return p.rdma(":1") },
	// NVSHMEM (NVSHMEM_HCA_LIST in its list of environment variables): device and port.
	"NVSHMEM_HCA_LIST": func(p pairing) string { return p.rdma(":1") },
}

// rdma lists the RDMA devices, each with a suffix.
func (p pairing) rdma(suffix string) string {
	var names []string
	for _, vf := range p.vfs {
		if vf.RDMA != "" {
			names = append(names, vf.RDMA+suffix)
		}
	}
	return strings.Join(names, ",")
}

func (p pairing) mapping() string {
	var pairs []string
	for _, served := range p.served {
		if i := slices.IndexFunc(p.vfs, func(vf coordination.PairVF) bool { return vf.ID == served.VF }); i >= 0 {
			pairs = append(pairs, served.GPU.String()+"="+p.vfs[i].Address.String())
		}
	}
	return strings.Join(pairs, ",")
}

// pair tells a container of its pairs, as far as its resource wants that. What cannot be told is left out: the container has
// its devices all the same.
func (p *Plugin) pair(ctx context.Context, pool Pool, order []string, answer *v1beta1.ContainerAllocateResponse) {
	wanted := pool.resource.Tandem
	if wanted.Alias {
		name := variable(p.name)
		answer.Envs[shellName(name)] = answer.Envs[name]
		answer.Envs[shellName(name)+"_INFO"] = answer.Envs[name+"_INFO"]
	}
	if !wanted.Pairs && len(wanted.Variables) == 0 {
		return
	}
	told := pairing{vfs: p.pairVFs(pool, order)}
	file := ""
	if wanted.Pairs {
		file = p.pairsFile(told.vfs, answer)
	}
	told.served = p.member.Pair(ctx, order, file)
	for _, name := range wanted.Variables {
		if value := pairVariables[name](told); strings.Trim(value, "=") != "" {
			answer.Envs[name] = value
		}
	}
}

// pairVFs looks up what a container is told of its VFs.
func (p *Plugin) pairVFs(pool Pool, order []string) []coordination.PairVF {
	var vfs []coordination.PairVF
	for _, id := range order {
		i := slices.IndexFunc(pool.Devices, func(d Device) bool { return d.ID == id })
		if i < 0 {
			continue
		}
		d := pool.Devices[i]
		vf := coordination.PairVF{ID: id, Address: d.Address, Resource: p.name}
		if names := p.host.rdmaDevices(d); len(names) > 0 {
			vf.RDMA = names[0]
		}
		if names := readNames(p.host.Sys, d.file("net")); len(names) > 0 {
			vf.Netdev = names[0]
		}
		vfs = append(vfs, vf)
	}
	return vfs
}

// pairsFile makes a container's pairs file, of VFs alone, and mounts it. Its name is in the kubelet's checkpoint for as long
// as the container is: see coordination.
func (p *Plugin) pairsFile(vfs []coordination.PairVF, answer *v1beta1.ContainerAllocateResponse) string {
	file := filepath.Join(p.host.PairsDir, rand.Text()+".json")
	err := os.MkdirAll(p.host.PairsDir, 0o700)
	if err == nil {
		err = coordination.NewPairsFile(vfs).Write(file)
	}
	if err != nil {
		p.log.Error("a container is not told of pairs", "error", err)
		return ""
	}
	answer.Mounts = append(answer.Mounts, &v1beta1.Mount{ContainerPath: pairsMount, HostPath: file, ReadOnly: true})
	return file
}

// shellName is a variable's name with all that shells do not take replaced.
func shellName(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' {
			return r
		}
		return '_'
	}, name)
}
