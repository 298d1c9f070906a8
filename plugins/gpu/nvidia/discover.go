package nvidia

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/gpu/nvidia/settings"
	"github.com/tandem-k8s/tandem/topology"
)

const wholeGPUs = settings.Vendor + "gpu"

// discovery turns what NVML says into devices.
type discovery struct {
	config  *settings.Config
	machine Machine
	broken  map[string]mark
	caps    map[string]string // MIG capability to device node, read once it is needed

	resources map[string][]gpu.Device
	notes     []string
}

func (d *discovery) inventory(cards []card) (gpu.Inventory, error) {
	d.resources = map[string][]gpu.Device{}
	partial := false
	for i := range cards {
		c := &cards[i]
		switch {
		case c.err != nil:
			partial = true
			d.note("GPU %s: left out, or unhealthy if it was offered: %v", c, c.err)
		case c.mig && d.config.MIGStrategy != settings.MIGNone:
			if err := d.addSlices(c); err != nil {
				return gpu.Inventory{}, err
			}
		default:
			d.add(wholeGPUs, d.whole(c))
		}
	}
	if d.config.MIGStrategy == settings.MIGSingle {
		if err := uniform(cards); err != nil {
			return gpu.Inventory{}, err
		}
	}
	for resource := range d.config.Sharing.Replicas {
		if len(d.resources[resource]) == 0 {
			d.note("sharing.timeSlicing: %s has no device here", resource)
		}
	}
	return gpu.Inventory{Resources: share(d.config.Sharing, d.resources), Notes: d.notes, Partial: partial}, nil
}

func (d *discovery) note(format string, args ...any) {
	d.notes = append(d.notes, fmt.Sprintf(format, args...))
}

func (d *discovery) add(resource string, device gpu.Device) {
	d.resources[resource] = append(d.resources[resource], device)
}

// String names a GPU for people: by its number, which nvidia-smi shows, and its address.
func (c *card) String() string {
	if c.address == (topology.Address{}) {
		return strconv.Itoa(c.index)
	}
	return fmt.Sprintf("%d (%s)", c.index, c.address)
}

// device is what GPUs and MIG devices have in common.
func (d *discovery) device(c *card, id, index string) gpu.Device {
	return gpu.Device{
		ID: id, Card: c.address, NUMA: d.numa(c.address), Nodes: []string{fmt.Sprintf("/dev/nvidia%d", c.minor)},
		Index: index, VRAM: c.memory, Healthy: true,
	}
}

// whole is the device of a whole GPU.
func (d *discovery) whole(c *card) gpu.Device {
	device := d.device(c, c.uuid, strconv.Itoa(c.index))
	if m, broken := d.broken[c.uuid]; broken {
		d.note("GPU %s: unhealthy: %s", c, m.why)
		device.Healthy = false
	}
	return device
}

// numa is the GPU's NUMA node. Where sysfs cannot say it is unknown, as for NVIDIA's own plugin.
func (d *discovery) numa(address topology.Address) topology.NUMANode {
	content, err := fs.ReadFile(d.machine.Sys, "bus/pci/devices/"+address.String()+"/numa_node")
	if err != nil {
		return topology.NUMANode{}
	}
	node, err := topology.ParseNUMANode(strings.TrimSpace(string(content)))
	if err != nil {
		d.note("numa_node of %s is %q: no NUMA node is told", address, content)
	}
	return node
}

// addSlices adds the MIG devices of a GPU.
func (d *discovery) addSlices(c *card) error {
	if len(c.slices) == 0 {
		if d.config.MIGStrategy == settings.MIGSingle {
			return fmt.Errorf("offer MIG devices: MIG is on and there is no MIG device on GPU %s: make some "+
				"(nvidia-smi mig -cgi), turn MIG off, or use --mig-strategy=mixed", c)
		}
		d.note("GPU %s: MIG is on and there is no MIG device", c)
	}
	for i := range c.slices {
		s := &c.slices[i]
		resource := wholeGPUs
		switch {
		case s.err != nil:
			d.note("MIG device %d of GPU %s: left out, or unhealthy if it was offered: %v", s.index, c, s.err)
			continue
		case d.config.MIGStrategy == settings.MIGMixed && !s.profile.whole:
			d.note("MIG device %d of GPU %s: left out: its profile %s shares a GPU instance",
				s.index, c, s.profile.name)
			continue
		case d.config.MIGStrategy == settings.MIGMixed:
			resource = settings.Vendor + "mig-" + strings.ReplaceAll(s.profile.name, "+", ".")
		}
		d.add(resource, d.slice(c, s))
	}
	return nil
}

// slice is the device of a MIG device. It is no better than its GPU.
func (d *discovery) slice(c *card, s *slice) gpu.Device {
	device := d.device(c, s.uuid, fmt.Sprintf("%d:%d", c.index, s.index))
	device.Part = fmt.Sprintf("%d-%d", s.gi, s.ci)
	for _, id := range []string{s.uuid, c.uuid} {
		if m, broken := d.broken[id]; broken && device.Healthy {
			d.note("MIG device %d of GPU %s: unhealthy: %s", s.index, c, m.why)
			device.Healthy = false
		}
	}
	capabilities := d.capabilities(c, s)
	if len(capabilities) == 0 && d.config.PassDeviceSpecs {
		d.note("MIG device %d of GPU %s: unhealthy: its device nodes are not in %s", s.index, c, migMinors)
		device.Healthy = false
	}
	device.Nodes = append(device.Nodes, capabilities...)
	return device
}

// capabilities are the device nodes that open a MIG device's GPU instance and compute instance.
func (d *discovery) capabilities(c *card, s *slice) []string {
	if d.caps == nil {
		var err error
		if d.caps, err = readCapabilities(d.machine.Proc); err != nil {
			d.note("%v: containers are not told the device nodes of MIG devices", err)
		}
	}
	instance := fmt.Sprintf("gpu%d/gi%d", c.minor, s.gi)
	both := []string{d.caps[instance+"/access"], d.caps[fmt.Sprintf("%s/ci%d/access", instance, s.ci)]}
	if both[0] == "" || both[1] == "" {
		return nil
	}
	return both
}

// migMinors lists the minor number of every MIG capability (NVIDIA's MIG user guide, "device nodes and
// capabilities").
const migMinors = "driver/nvidia-caps/mig-minors"

func readCapabilities(proc fs.FS) (map[string]string, error) {
	caps := map[string]string{}
	content, err := fs.ReadFile(proc, migMinors)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return caps, fmt.Errorf("read MIG capabilities: %w", err)
	}
	for line := range strings.Lines(string(content)) {
		capability, minor, ok := strings.Cut(strings.TrimSpace(line), " ")
		if _, err := strconv.Atoi(minor); ok && err == nil {
			caps[capability] = "/dev/nvidia-caps/nvidia-cap" + minor
		}
	}
	return caps, nil
}

// uniform refuses what --mig-strategy=single cannot offer under one name.
func uniform(cards []card) error {
	const remedy = "configure all GPUs alike, or use --mig-strategy=mixed"
	var first *slice
	var divided, undivided, owner *card
	for i := range cards {
		c := &cards[i]
		if c.err != nil {
			continue
		}
		if !c.mig {
			undivided = c
			continue
		}
		divided = c
		for j := range c.slices {
			s := &c.slices[j]
			switch {
			case s.err != nil:
			case first == nil:
				first, owner = s, c
			case s.profile.attributes != first.profile.attributes:
				return fmt.Errorf("offer MIG devices as %s: they differ: %s on GPU %s, %s on GPU %s: %s",
					wholeGPUs, first.profile.name, owner, s.profile.name, c, remedy)
			}
		}
	}
	if divided != nil && undivided != nil {
		return fmt.Errorf("offer MIG devices as %s: MIG is on for GPU %s and off for GPU %s: %s",
			wholeGPUs, divided, undivided, remedy)
	}
	return nil
}
