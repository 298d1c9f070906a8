package rig

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
)

// The resources that pods ask for. The name of the GPUs is AMD's own, that of the VFs comes from sriovConfig.
const (
	GPU            = "amd.com/gpu"
	VF             = resourcePrefix + "/" + vfName
	resourcePrefix = "tandem.dev"
	vfName         = "rdma_vf"
)

// Device is a device as the kubelet knows it, and where it is.
type Device struct {
	ID      string
	Address topology.Address // of a partition, that of its card
	Render  string           // of a GPU: its render node, "renderD128"
}

// Machine is what a rig has to know of its machine to judge placements. It is read apart from the daemons' own code.
type Machine struct {
	Tree *topology.Tree
	gpus map[string]Device // by the name of the render node, "renderD128"
	vfs  []*topology.Device

	address map[string]topology.Address // of every GPU and VF, by device ID
}

func readMachine(sys fs.FS) (*Machine, error) {
	tree, err := topology.Read(sys)
	if err != nil {
		return nil, err
	}
	gpus, err := readGPUs(sys)
	if err != nil {
		return nil, fmt.Errorf("read GPUs: %w", err)
	}
	m := &Machine{Tree: tree, gpus: gpus, address: map[string]topology.Address{}}
	for _, gpu := range gpus {
		m.address[gpu.ID] = gpu.Address
	}
	for device := range tree.Devices() {
		if device.IsVF() {
			m.vfs = append(m.vfs, device)
			m.address[device.Address.String()] = device.Address
		}
	}
	return m, nil
}

// GPUs is the number of the machine's GPUs or, where they are partitioned, partitions.
func (m *Machine) GPUs() int { return len(m.gpus) }

// VFs is the number of the machine's VFs.
func (m *Machine) VFs() int { return len(m.vfs) }

// Level tells how far apart a GPU and a VF are.
func (m *Machine) Level(gpu, vf topology.Address) topology.Level {
	return m.Tree.Distance(gpu, vf).Level
}

// readGPUs finds the device behind each render node: the name of the device it hangs on, class/drm/<node>/device, is
// the device ID. For a GPU that is its address; a partition is a platform device, whose card only KFD knows.
func readGPUs(sys fs.FS) (map[string]Device, error) {
	cards, err := readKFD(sys)
	if err != nil {
		return nil, err
	}
	nodes, err := fs.Glob(sys, "class/drm/renderD*")
	if err != nil {
		return nil, err
	}
	gpus := map[string]Device{}
	for _, node := range nodes {
		target, err := fs.ReadLink(sys, node) // ../../devices/…/<device>/drm/renderD128
		if err != nil {
			return nil, err
		}
		name := path.Base(node)
		address, ok := cards[name]
		if !ok {
			return nil, fmt.Errorf("%s is not in KFD's topology", name)
		}
		gpus[name] = Device{ID: path.Base(path.Dir(path.Dir(target))), Address: address, Render: name}
	}
	return gpus, nil
}

// readKFD reads from class/kfd/kfd/topology/nodes/*/properties which PCI function is behind each render node.
func readKFD(sys fs.FS) (map[string]topology.Address, error) {
	files, err := fs.Glob(sys, "class/kfd/kfd/topology/nodes/*/properties")
	if err != nil {
		return nil, err
	}
	cards := map[string]topology.Address{}
	for _, file := range files {
		text, err := fs.ReadFile(sys, file)
		if err != nil {
			return nil, err
		}
		properties := parseProperties(string(text))
		if minor := properties["drm_render_minor"]; minor > 0 {
			cards[fmt.Sprint("renderD", minor)] = kfdAddress(properties["domain"], properties["location_id"])
		}
	}
	return cards, nil
}

// parseProperties reads lines of a name and a number; other lines are left out.
func parseProperties(text string) map[string]uint64 {
	properties := map[string]uint64{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseUint(value, 10, 64); err == nil {
			properties[name] = n
		}
	}
	return properties
}

// kfdAddress decodes location_id: bus and device as in a PCI address, but the low three bits number the partition;
// the function is always 0 (kfd_topology.c: pci_dev_id of the device; MI300 adds the partition).
func kfdAddress(domain, location uint64) topology.Address {
	return topology.Address{Domain: uint32(domain), Bus: uint8(location >> 8), Device: uint8(location >> 3 & 0x1f)}
}

// sriovConfig offers all VFs of the machine, the decoys among them, as one resource.
func (m *Machine) sriovConfig(excludeTopology bool) []byte {
	type selectors struct {
		Vendors []string `json:"vendors"`
		Devices []string `json:"devices"`
		IsRdma  bool     `json:"isRdma"`
	}
	type resource struct {
		Name            string    `json:"resourceName"`
		ExcludeTopology bool      `json:"excludeTopology"`
		Selectors       selectors `json:"selectors"`
		Tandem          tandem    `json:"tandem"`
	}
	vfs := resource{Name: vfName, ExcludeTopology: excludeTopology, Selectors: selectors{IsRdma: true}, Tandem: told}
	for _, vf := range m.vfs {
		vfs.Selectors.Vendors = append(vfs.Selectors.Vendors, fmt.Sprintf("%04x", vf.Vendor))
		vfs.Selectors.Devices = append(vfs.Selectors.Devices, fmt.Sprintf("%04x", vf.Product))
	}
	for _, list := range []*[]string{&vfs.Selectors.Vendors, &vfs.Selectors.Devices} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	text, err := json.MarshalIndent(map[string]any{"resourceList": []resource{vfs}}, "", "  ")
	if err != nil {
		panic(err) // strings and booleans can be encoded
	}
	return text
}

// addressesOf says where devices are, one address per device: partitions of a card repeat it.
func (m *Machine) addressesOf(ids []string) []topology.Address {
	var list []topology.Address
	for _, id := range ids {
		list = append(list, m.address[id])
	}
	return list
}

func addresses(devices []Device) []topology.Address {
	var list []topology.Address
	for _, d := range devices {
		list = append(list, d.Address)
	}
	return list
}
