// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/topology"
)

const wholeGPUs = vendor + "gpu"

// discovery converts NVML's data to devices.
type discovery struct {
	*Backend
	nodes  nodes
	broken map[string]mark
	caps   map[string]string // MIG capability to device node, read on first use

	resources map[string][]gpu.Device
	notes     []string
}

func (d *discovery) makeInventory(cards []card) gpu.Inventory {
	d.resources = map[string][]gpu.Device{}
	var read []topology.Address
	for i := range cards {
		c := &cards[i]
		switch {
		case c.err != nil:
			d.addNote("GPU %s: left out, or unhealthy if it was offered: %v", c, c.err)
			continue
		case c.mig && d.config.MIGStrategy != migNone:
			d.addSlices(c)
		default:
			d.addDevice(wholeGPUs, d.newWhole(c))
		}
		if c.readWhole() {
			read = append(read, c.address)
		}
	}
	for resource := range d.config.Sharing.Replicas {
		if len(d.resources[resource]) == 0 {
			d.addNote("sharing.timeSlicing: %s has no device here", resource)
		}
	}
	found := gpu.Inventory{Resources: makeReplicas(d.config.Sharing, d.resources), Notes: d.notes}
	if len(read) < len(cards) {
		found.Partial, found.Read = true, read
	}
	return found
}

func (d *discovery) addNote(format string, args ...any) {
	d.notes = append(d.notes, fmt.Sprintf(format, args...))
}

func (d *discovery) addDevice(resource string, device gpu.Device) {
	d.resources[resource] = append(d.resources[resource], device)
}

// String returns a GPU's name for people: its number in nvidia-smi, and its address.
func (c *card) String() string {
	if c.address == (topology.Address{}) {
		return strconv.Itoa(c.index)
	}
	return fmt.Sprintf("%d (%s)", c.index, c.address)
}

// newDevice returns the common part of GPUs and MIG devices.
func (d *discovery) newDevice(c *card, id, index string) gpu.Device {
	return gpu.Device{
		ID: id, Card: c.address, NUMA: d.readNUMA(c.address),
		Nodes: []string{fmt.Sprintf("/dev/nvidia%d", c.minor)}, Index: index, VRAM: c.memory, Healthy: true,
	}
}

// failDevice makes a device unhealthy for a reason.
func (d *discovery) failDevice(device *gpu.Device, name, why string) {
	d.addNote("%s: unhealthy: %s", name, why)
	device.Fail(why)
}

// newWhole returns the device of a whole GPU.
func (d *discovery) newWhole(c *card) gpu.Device {
	name := fmt.Sprint("GPU ", c)
	device := d.newDevice(c, c.uuid, strconv.Itoa(c.index))
	if m, broken := d.broken[c.uuid]; broken {
		d.failDevice(&device, name, m.why)
	}
	if why := d.nodes.findLacking(c.uuid, device.Nodes); why != "" {
		d.failDevice(&device, name, why)
	}
	if d.isOther(undivided{}) {
		d.failDevice(&device, name, "MIG is off, as it was not when all GPUs were last alike")
	}
	return device
}

// readNUMA returns the GPU's NUMA node from sysfs, or unknown, as in NVIDIA's own plugin.
func (d *discovery) readNUMA(address topology.Address) topology.NUMANode {
	content, err := fs.ReadFile(d.machine.Sys, "bus/pci/devices/"+address.String()+"/numa_node")
	if err != nil {
		return topology.NUMANode{}
	}
	node, err := topology.ParseNUMANode(strings.TrimSpace(string(content)))
	if err != nil {
		d.addNote("numa_node of %s is %q: no NUMA node is told", address, content)
	}
	return node
}

// addSlices adds the MIG devices of a GPU.
func (d *discovery) addSlices(c *card) {
	if len(c.slices) == 0 {
		d.addNote("GPU %s: MIG is on and there is no MIG device", c)
	}
	for i := range c.slices {
		s := &c.slices[i]
		name := fmt.Sprintf("MIG device %d of GPU %s", s.index, c)
		resource := wholeGPUs
		switch {
		case s.err != nil:
			d.addNote("%s: left out, or unhealthy if it was offered: %v", name, s.err)
			continue
		case d.config.MIGStrategy == migMixed && !s.profile.whole:
			d.addNote("%s: left out: its profile %s shares a GPU instance", name, s.profile.name)
			continue
		case d.config.MIGStrategy == migMixed:
			resource = vendor + "mig-" + strings.ReplaceAll(s.profile.name, "+", ".")
		}
		d.addDevice(resource, d.newSlice(c, s, name))
	}
}

// newSlice returns the device of a MIG device with a name, which is unhealthy if its GPU is.
func (d *discovery) newSlice(c *card, s *slice, name string) gpu.Device {
	device := d.newDevice(c, s.uuid, fmt.Sprintf("%d:%d", c.index, s.index))
	device.Part = fmt.Sprintf("%d-%d", s.gi, s.ci)
	for _, id := range []string{s.uuid, c.uuid} {
		if m, broken := d.broken[id]; broken && device.Healthy {
			d.failDevice(&device, name, m.why)
		}
	}
	if d.isOther(s.profile.attributes) {
		d.addNote("%s: unhealthy: it is %s, as none was when all GPUs were last alike", name, s.profile.name)
		device.Fail("of another profile than all were when all GPUs were last alike")
	}
	capabilities := d.findCapabilities(c, s)
	if len(capabilities) == 0 && d.config.PassDeviceSpecs {
		d.failDevice(&device, name, "its device nodes are not in "+migMinors)
	}
	device.Nodes = append(device.Nodes, capabilities...)
	if why := d.nodes.findLacking(s.uuid, device.Nodes); why != "" {
		d.failDevice(&device, name, why)
	}
	return device
}

// findCapabilities returns the device nodes that give access to a MIG device's GPU instance and compute
// instance.
func (d *discovery) findCapabilities(c *card, s *slice) []string {
	if d.caps == nil {
		var err error
		d.caps, err = readCapabilities(d.machine.Proc)
		if err != nil {
			d.addNote("%v: containers are not told the device nodes of MIG devices", err)
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

// undivided is the kind of a GPU with MIG off. The kind of a MIG device is the comparable part of its
// profile.
type undivided struct{}

// isOther reports whether a device differs from the kind that --mig-strategy=single offers.
func (d *discovery) isOther(kind any) bool { return d.kind != nil && d.kind != kind }

// commonKind returns the common kind of all responsive GPUs, or of their MIG devices; nil if there is none or
// more than one. The error is the reason why --mig-strategy=single cannot offer them.
func commonKind(cards []card) (kind any, mixture error) {
	const remedy = "configure all GPUs alike, or use --mig-strategy=mixed"
	var first *slice
	var divided, whole, owner, empty *card
	for i := range cards {
		c := &cards[i]
		switch {
		case c.err != nil:
			continue
		case !c.mig:
			whole = c
			continue
		case len(c.slices) == 0 && empty == nil:
			empty = c
		}
		divided = c
		for j := range c.slices {
			s := &c.slices[j]
			switch {
			case s.err != nil:
			case first == nil:
				first, owner = s, c
			case s.profile.attributes != first.profile.attributes && mixture == nil:
				mixture = fmt.Errorf("offer MIG devices as %s: they differ: %s on GPU %s, %s on GPU %s: %s",
					wholeGPUs, first.profile.name, owner, s.profile.name, c, remedy)
			}
		}
	}
	switch {
	case mixture != nil:
	case whole == nil && first != nil:
		kind = first.profile.attributes
	case whole != nil && first == nil:
		kind = undivided{}
	}
	switch {
	case empty != nil:
		mixture = fmt.Errorf("offer MIG devices: MIG is on and there is no MIG device on GPU %s: make some "+
			"(nvidia-smi mig -cgi), turn MIG off, or use --mig-strategy=mixed", empty)
	case mixture == nil && divided != nil && whole != nil:
		mixture = fmt.Errorf("offer MIG devices as %s: MIG is on for GPU %s and off for GPU %s: %s",
			wholeGPUs, divided, whole, remedy)
	}
	return kind, mixture
}
