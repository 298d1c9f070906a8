// SPDX-License-Identifier: Apache-2.0

package verify

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

// findDevices fills the lists of the container's devices.
func (v *Check) findDevices(sys fs.FS, tree *topology.Tree, r *Verification) error {
	v.findVFs(sys, tree, r)
	if err := v.findAMD(sys, r); err != nil {
		return err
	}
	if err := v.findNVIDIA(r); err != nil {
		return err
	}
	slices.SortStableFunc(r.GPUs, func(a, b GPU) int { return a.Address.Compare(b.Address) })
	return nil
}

// Functions returns the functions of the container's GPUs and VFs. It returns an error if there are none or
// if they are invalid.
func (v *Check) Functions(sys fs.FS, tree *topology.Tree) (functions []topology.Address, err error) {
	var found Verification
	if err := v.findDevices(sys, tree, &found); err != nil {
		return nil, err
	}
	if len(found.Failures) > 0 {
		return nil, fmt.Errorf("find the container's devices: %s", strings.Join(found.Failures, "; "))
	}
	for _, g := range found.GPUs {
		functions = append(functions, g.Address)
	}
	for _, vf := range found.VFs {
		functions = append(functions, vf.Address)
	}
	if len(functions) == 0 {
		return nil, fmt.Errorf("find the container's devices: it has none; tandem verify says what is looked at")
	}
	return functions, nil
}

// findVFs adds the VFs of the variables PCIDEVICE_<resource>, in order (GetEnvs in pkg/resources/pool_stub.go
// of the SR-IOV network device plugin). A second variable of each resource ends in _INFO and holds facts. An
// HCA allocated twice appears twice in one variable; a device in several variables is an alias.
func (v *Check) findVFs(sys fs.FS, tree *topology.Tree, r *Verification) {
	environment := slices.Sorted(slices.Values(v.Environment))
	for _, variable := range environment {
		name, value, _ := strings.Cut(variable, "=")
		if !strings.HasPrefix(name, "PCIDEVICE_") || strings.HasSuffix(name, "_INFO") {
			continue
		}
		before := slices.Clone(r.VFs)
		for id := range strings.SplitSeq(value, ",") {
			id = strings.TrimSpace(id)
			address, err := topology.ParseAddress(id)
			d, ok := tree.Device(address)
			switch {
			case err != nil:
				r.fail("%s names %q, which is no PCI address", name, id)
			case !ok:
				r.fail("%s names %s, and this machine has no such PCI function", name, address)
			case d.IsNIC() && !slices.ContainsFunc(before, func(vf VF) bool { return vf.Address == address }):
				r.VFs = append(r.VFs, VF{Address: address, RDMA: d.RDMA, Netdevs: d.Netdevs})
				v.checkVerbs(sys, r, address)
			}
		}
	}
}

// checkVerbs adds a failure for each RDMA device node of a VF that the container lacks.
func (v *Check) checkVerbs(sys fs.FS, r *Verification, vf topology.Address) {
	nodes, err := fs.ReadDir(sys, path.Join(topology.PCIDevices, vf.String(), "infiniband_verbs"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // absent without RDMA
		r.fail("RDMA device nodes of VF %s are not known: %v", vf, err)
	}
	for _, node := range nodes {
		if !v.hasNode("infiniband/" + node.Name()) {
			r.fail("VF %s has the RDMA device node /dev/infiniband/%s, and it is not in the container", vf,
				node.Name())
		}
	}
}

func (v *Check) hasNode(node string) bool {
	_, err := os.Stat(filepath.Join(v.DevRoot, node))
	return err == nil
}

// findAMD adds the GPUs and partitions whose render nodes are in the container.
func (v *Check) findAMD(sys fs.FS, r *Verification) error {
	if !amd.IsLoaded(sys) {
		return nil
	}
	inventory, err := amd.Read(sys, amd.Mixed)
	if err != nil {
		return err
	}
	order := v.rocmOrder(sys)
	for _, devices := range inventory.Resources {
		for _, d := range devices {
			i := slices.IndexFunc(d.Nodes, v.isRendered)
			if i < 0 {
				continue
			}
			r.GPUs = append(r.GPUs, GPU{ID: d.ID, Address: d.Card, rocm: slices.Index(order, d.Nodes[i])})
			if !v.hasNode(strings.TrimPrefix(amd.ComputeNode, "/dev/")) {
				r.fail("GPU %s is of no use to a program without the device node %s, and it is not in the container",
					d.ID, amd.ComputeNode)
			}
		}
	}
	slices.SortFunc(r.GPUs, func(a, b GPU) int { return strings.Compare(a.ID, b.ID) })
	return nil
}

// isRendered reports whether a device node is a render node of the container.
func (v *Check) isRendered(node string) bool {
	return strings.HasPrefix(path.Base(node), "renderD") && v.hasNode(strings.TrimPrefix(node, "/dev/"))
}

// rocmOrder returns the container's render nodes as ROCm orders its GPUs, or none if the order is unknown.
func (v *Check) rocmOrder(sys fs.FS) []string {
	nodes, err := amd.ReadOrder(sys)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(nodes, func(node string) bool { return !v.isRendered(node) })
}

// findNVIDIA adds the GPUs whose UUIDs are in NVIDIA_VISIBLE_DEVICES or, if the variable has any other value
// ("all", "void", indexes, MIG devices, a folder), those whose device nodes are in the container.
func (v *Check) findNVIDIA(r *Verification) error {
	gpus, err := v.readNVIDIA()
	if err != nil {
		return err
	}
	names, before := v.visibleUUIDs(), len(r.GPUs)
	for _, g := range gpus {
		node, named := "nvidia"+g.minor, slices.Contains(names, g.UUID)
		there := v.hasNode(node)
		if named || len(names) == 0 && there {
			r.GPUs = append(r.GPUs, g)
		}
		if named && !there {
			r.fail("GPU %s has the device node /dev/%s, and it is not in the container: "+
				"the pod's RuntimeClass is not NVIDIA's, or the runtime has no CDI", g.Address, node)
		}
	}
	for _, node := range []string{"nvidiactl", "nvidia-uvm"} { // which CUDA opens beside those of the GPUs
		if len(r.GPUs) > before && !v.hasNode(node) {
			r.fail("CUDA opens the device node /dev/%s, and the container lacks the node", node)
		}
	}
	for _, uuid := range names {
		if !slices.ContainsFunc(gpus, func(g GPU) bool { return g.UUID == uuid }) {
			r.fail("NVIDIA_VISIBLE_DEVICES names %s, and no GPU in %s/driver/nvidia/gpus has that UUID",
				uuid, v.ProcRoot)
		}
	}
	nodes, err := filepath.Glob(filepath.Join(v.DevRoot, "nvidia[0-9]*"))
	if err == nil && len(nodes) > 0 && len(gpus) == 0 {
		r.fail("%s is there, and no file %s/driver/nvidia/gpus/*/information tells which PCI function it is",
			nodes[0], v.ProcRoot)
	}
	return err
}

// visibleUUIDs returns the UUIDs in NVIDIA_VISIBLE_DEVICES, or nil if the variable has any other value.
func (v *Check) visibleUUIDs() []string {
	var uuids []string
	for _, variable := range v.Environment {
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

// readNVIDIA reads the GPUs of NVIDIA's driver: /proc/driver/nvidia/gpus/<address>/information holds lines
// such as "GPU UUID: GPU-…" and "Device Minor: 0". NVIDIA's container runtime shows a container only its own
// GPUs there.
func (v *Check) readNVIDIA() ([]GPU, error) {
	files, err := filepath.Glob(filepath.Join(v.ProcRoot, "driver/nvidia/gpus/*/information"))
	if err != nil {
		return nil, err
	}
	var gpus []GPU
	for _, file := range files {
		address, err := topology.ParseAddress(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read GPU %s: %w", address, err)
		}
		g := GPU{ID: address.String(), Address: address, nvidia: true}
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
