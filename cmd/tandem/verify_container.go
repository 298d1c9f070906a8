package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/plugins/gpu/amd"
	"github.com/tandem-k8s/tandem/topology"
)

// container is where the devices of a container show.
type container struct {
	environment []string // "NAME=value"
	sysfsRoot   string
	devRoot     string
	procRoot    string
}

type containerGPU struct {
	ID      string           `json:"id"` // its address; of an AMD partition amdgpu_xcp_<n>
	Address topology.Address `json:"address"`
	UUID    string           `json:"uuid,omitempty"` // NVIDIA only
}

type containerVF struct {
	Address topology.Address `json:"address"`
	RDMA    []string         `json:"rdma,omitempty"`
	Netdevs []string         `json:"netdevs,omitempty"`
}

// find fills the lists of the container's devices.
func (c *container) find(sys fs.FS, tree *topology.Tree, r *verification) error {
	c.vfs(sys, tree, r)
	if err := c.amd(sys, r); err != nil {
		return err
	}
	if err := c.nvidia(r); err != nil {
		return err
	}
	slices.SortStableFunc(r.GPUs, func(a, b containerGPU) int { return a.Address.Compare(b.Address) })
	return nil
}

// vfs are what the variables PCIDEVICE_<resource> name, in their order (GetEnvs in pkg/resources/pool_stub.go of the SR-IOV
// network device plugin). A second variable of each resource ends in _INFO and holds facts.
func (c *container) vfs(sys fs.FS, tree *topology.Tree, r *verification) {
	environment := slices.Sorted(slices.Values(c.environment))
	for _, variable := range environment {
		name, value, _ := strings.Cut(variable, "=")
		if !strings.HasPrefix(name, "PCIDEVICE_") || strings.HasSuffix(name, "_INFO") {
			continue
		}
		for id := range strings.SplitSeq(value, ",") {
			c.vf(sys, tree, r, name, strings.TrimSpace(id))
		}
	}
}

func (c *container) vf(sys fs.FS, tree *topology.Tree, r *verification, variable, id string) {
	address, err := topology.ParseAddress(id)
	if err != nil {
		r.fail("%s names %q, which is no PCI address", variable, id)
		return
	}
	d, ok := tree.Device(address)
	if !ok {
		r.fail("%s names %s, and this machine has no such PCI function", variable, address)
		return
	}
	known := slices.ContainsFunc(r.VFs, func(vf containerVF) bool { return vf.Address == address })
	if known || !d.Class.IsNetwork() {
		return // a second variable with the same list, or a device of another kind
	}
	r.VFs = append(r.VFs, containerVF{Address: address, RDMA: d.RDMA, Netdevs: d.Netdevs})
	nodes, _ := fs.ReadDir(sys, path.Join("bus/pci/devices", address.String(), "infiniband_verbs")) // absent without RDMA
	for _, node := range nodes {
		if !c.has("infiniband/" + node.Name()) {
			r.fail("VF %s has the RDMA device node /dev/infiniband/%s, and it is not in the container", address, node.Name())
		}
	}
}

func (c *container) has(node string) bool {
	_, err := os.Stat(filepath.Join(c.devRoot, node))
	return err == nil
}

// amd adds the GPUs and partitions whose device nodes are in the container.
func (c *container) amd(sys fs.FS, r *verification) error {
	if _, err := fs.Stat(sys, "module/amdgpu"); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	backend, err := amd.New(sys, amd.Mixed)
	if err != nil {
		return err
	}
	inventory, err := backend.Discover()
	if err != nil {
		return err
	}
	for _, devices := range inventory.Resources {
		for _, d := range devices {
			rendered := slices.ContainsFunc(d.Nodes, func(node string) bool {
				return strings.HasPrefix(path.Base(node), "renderD") && c.has(strings.TrimPrefix(node, "/dev/"))
			})
			if rendered {
				r.GPUs = append(r.GPUs, containerGPU{ID: d.ID, Address: d.Card})
			}
		}
	}
	slices.SortFunc(r.GPUs, func(a, b containerGPU) int { return strings.Compare(a.ID, b.ID) })
	return nil
}

// nvidia adds the GPUs that NVIDIA_VISIBLE_DEVICES names by UUID or, where it holds anything else ("all", "void", indexes, MIG
// devices, a folder), those whose device nodes are in the container.
func (c *container) nvidia(r *verification) error {
	gpus, err := c.nvidiaGPUs()
	if err != nil {
		return err
	}
	names := c.visible()
	for _, g := range gpus {
		if slices.Contains(names, g.UUID) || len(names) == 0 && c.has("nvidia"+g.minor) {
			r.GPUs = append(r.GPUs, g.containerGPU)
		}
	}
	for _, uuid := range names {
		if !slices.ContainsFunc(gpus, func(g nvidiaGPU) bool { return g.UUID == uuid }) {
			r.fail("NVIDIA_VISIBLE_DEVICES names %s, and no GPU in %s/driver/nvidia/gpus has that UUID", uuid, c.procRoot)
		}
	}
	nodes, err := filepath.Glob(filepath.Join(c.devRoot, "nvidia[0-9]*"))
	if err == nil && len(nodes) > 0 && len(gpus) == 0 {
		r.fail("%s is there, and no file %s/driver/nvidia/gpus/*/information tells which PCI function it is", nodes[0], c.procRoot)
	}
	return err
}

// visible lists the UUIDs of NVIDIA_VISIBLE_DEVICES; none unless it lists nothing else.
func (c *container) visible() []string {
	var uuids []string
	for _, variable := range c.environment {
		list, ok := strings.CutPrefix(variable, "NVIDIA_VISIBLE_DEVICES=")
		if !ok {
			continue
		}
		uuids = strings.Split(list, ",")
		if slices.ContainsFunc(uuids, func(s string) bool { return !strings.HasPrefix(s, "GPU-") }) {
			return nil
		}
	}
	return uuids
}

type nvidiaGPU struct {
	containerGPU
	minor string // of /dev/nvidia<minor>
}

// nvidiaGPUs reads what NVIDIA's driver tells: /proc/driver/nvidia/gpus/<address>/information holds lines such as
// "GPU UUID:  GPU-…" and "Device Minor:  0". In a container that NVIDIA's runtime made it has the container's GPUs only.
func (c *container) nvidiaGPUs() ([]nvidiaGPU, error) {
	files, err := filepath.Glob(filepath.Join(c.procRoot, "driver/nvidia/gpus/*/information"))
	if err != nil {
		return nil, err
	}
	var gpus []nvidiaGPU
	for _, file := range files {
		address, err := topology.ParseAddress(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read GPU %s: %w", address, err)
		}
		g := nvidiaGPU{containerGPU: containerGPU{ID: address.String(), Address: address}}
		for line := range strings.Lines(string(content)) {
			key, value, _ := strings.Cut(line, ":")
			switch strings.TrimSpace(key) {
			case "GPU UUID":
				g.UUID = strings.TrimSpace(value)
			case "Device Minor":
				g.minor = strings.TrimSpace(value)
			}
		}
		gpus = append(gpus, g)
	}
	return gpus, nil
}
