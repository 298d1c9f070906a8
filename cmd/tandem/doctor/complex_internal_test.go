// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/tandem-k8s/tandem/topology"
)

// small is a machine with one complex, by names of functions.
type small struct {
	functions []*topology.Device
	places    []topology.Place
	groups    map[topology.Address]string
}

func at(name string) topology.Address {
	a, err := topology.ParseAddress(name)
	if err != nil {
		panic(err)
	}
	return a
}

// add adds a function below bridges, from the top down.
func (s *small) add(name string, class topology.Class, id uint32, bridges ...string) *topology.Device {
	d := &topology.Device{
		Address: at(name), Class: class, Vendor: uint16(id >> 16), Product: uint16(id), ACS: topology.ACSOff,
	}
	place := topology.Place{RootComplex: "pci" + name[:7], NUMA: topology.Node(0)}
	for _, bridge := range bridges {
		place.Bridges = append(place.Bridges, at(bridge))
	}
	s.functions, s.places = append(s.functions, d), append(s.places, place)
	return d
}

// port adds a port with an ACS control register.
func (s *small) port(name string, id uint32, control uint16, bridges ...string) {
	s.add(name, topology.PortClass, id, bridges...).Control = control
}

func (s *small) find(name string) *topology.Device {
	of := func(d *topology.Device) bool { return d.Address == at(name) }
	return s.functions[slices.IndexFunc(s.functions, of)]
}

func (s *small) findings() string {
	c := newComplexes(topology.Assemble(s.functions, s.places, []int{0, 1}))
	c.groups = s.groups
	var lines []string
	for _, f := range runChecks(&Node{complexes: c}, ofPlugins, complexChecks...) {
		lines = append(lines, f.ID+" "+string(f.Severity))
		lines = append(append(lines, f.Evidence...), f.Fix...)
	}
	return strings.Join(lines, "\n")
}

// Vendor and device of functions.
const (
	graceID  = 0x10de22b1
	veraID   = 0x10de2f95
	hostID   = 0x8086352a
	switchID = 0x15b3197c
	gpuID    = 0x10de31c2
	nicID    = 0x15b31023
	dmaID    = 0x15b32100
	gpuClass = 0x030200
	nicClass = 0x020000
)

// newDMA has every register as wanted.
func newDMA() *small {
	s := &small{}
	s.port("0008:00:00.0", graceID, 0x1c)
	s.port("0008:01:00.0", switchID, 0, "0008:00:00.0")
	s.port("0008:02:00.0", switchID, 0x19, "0008:00:00.0", "0008:01:00.0")
	s.port("0008:02:01.0", switchID, 0x15, "0008:00:00.0", "0008:01:00.0")
	s.port("0008:04:00.0", switchID, 0, "0008:00:00.0", "0008:01:00.0", "0008:02:01.0")
	s.port("0008:05:00.0", switchID, 0x1d, "0008:00:00.0", "0008:01:00.0", "0008:02:01.0", "0008:04:00.0")
	s.add("0008:03:00.0", 0x020700, dmaID, "0008:00:00.0", "0008:01:00.0", "0008:02:00.0").V3 = "a"
	s.add("0008:06:00.0", gpuClass, gpuID, "0008:00:00.0", "0008:01:00.0", "0008:02:01.0", "0008:04:00.0",
		"0008:05:00.0")
	s.port("0000:00:00.0", graceID, 0x1d)
	s.add("0000:03:00.0", nicClass, nicID, "0000:00:00.0").V3 = "a"
	s.groups = map[topology.Address]string{
		at("0008:03:00.0"): "4", at("0008:06:00.0"): "4", at("0000:03:00.0"): "5",
	}
	return s
}

// newC2C has a GPU and a NIC on root ports of one NUMA node.
func newC2C(root uint32, control uint16) *small {
	s := &small{}
	s.port("0008:00:00.0", root, control)
	s.add("0008:01:00.0", gpuClass, gpuID, "0008:00:00.0")
	s.port("0000:00:00.0", root, control)
	s.add("0000:01:00.0", nicClass, nicID, "0000:00:00.0")
	s.groups = map[topology.Address]string{at("0008:01:00.0"): "4", at("0000:01:00.0"): "5"}
	return s
}

// newInline has a GPU and a NIC below one switch. Group "" is none.
func newInline(root, nic, gpu uint16, groups ...string) *small {
	s := &small{}
	s.port("0000:00:00.0", hostID, root)
	s.port("0000:01:00.0", switchID, 0, "0000:00:00.0")
	s.port("0000:02:00.0", switchID, nic, "0000:00:00.0", "0000:01:00.0")
	s.port("0000:02:01.0", switchID, gpu, "0000:00:00.0", "0000:01:00.0")
	s.add("0000:03:00.0", nicClass, nicID, "0000:00:00.0", "0000:01:00.0", "0000:02:00.0")
	s.add("0000:04:00.0", gpuClass, gpuID, "0000:00:00.0", "0000:01:00.0", "0000:02:01.0")
	s.groups = map[topology.Address]string{at("0000:03:00.0"): groups[0], at("0000:04:00.0"): groups[1]}
	return s
}

func bare() *small { return newInline(0, 0, 0, "1", "1") }

func virtual() *small {
	s := newInline(0x1d, 0x5d, 0x1d, "1", "2")
	s.find("0000:03:00.0").ATS = true
	s.find("0000:04:00.0").Driver = "vfio-pci"
	return s
}

// passedVF is a NIC of which a guest has a VF, with the ports of bare metal.
func passedVF() *small {
	s := bare()
	vf := s.add("0000:03:00.1", nicClass, 0x15b3101e, "0000:00:00.0")
	vf.PF, vf.Driver = at("0000:03:00.0"), "mlx5_vfio_pci"
	s.find("0000:03:00.0").VFs = []topology.Address{vf.Address}
	return s
}

// undecided has ATS and none of the ports' values for guests.
func undecided(control uint16) *small {
	s := newInline(control, control, control, "1", "1")
	s.find("0000:03:00.0").ATS = true
	return s
}

// beside adds a switch of another NIC outside the complex, and the root port above.
func beside(s *small, root uint32, rootControl, control uint16) *small {
	s.port("0001:00:00.0", root, rootControl)
	s.port("0001:01:00.0", switchID, 0, "0001:00:00.0")
	s.port("0001:02:00.0", switchID, control, "0001:00:00.0", "0001:01:00.0")
	return s
}

func control(s *small, port string, value uint16) *small {
	s.find(port).Control = value
	return s
}

func regroup(s *small, function, group string) *small {
	s.groups[at(function)] = group
	return s
}

func atsOf(s *small, nic string, ats bool) *small {
	s.find(nic).ATS = ats
	return s
}

func v3Of(s *small, function, v3 string) *small {
	s.find(function).V3 = v3
	return s
}

// hiddenPF adds a PF with an unread keyword V3 beside that of the DMA function.
func hiddenPF(s *small) *small {
	s.add("0000:03:00.1", nicClass, nicID, "0000:00:00.0")
	return s
}

// TestComplexesAreSilent with every value of the table, and with any value of the bits that do not matter.
func TestComplexesAreSilent(t *testing.T) {
	t.Parallel()
	free, unread := newDMA(), newDMA()
	for _, d := range free.functions {
		if d.Control != 0 {
			d.Control |= 0x62
		}
	}
	for _, d := range unread.functions {
		d.ACS, d.Control = topology.ACSUnknown, 0
	}
	ordinary := &small{}
	ordinary.port("0000:00:00.0", hostID, 0x1d)
	ordinary.add("0000:01:00.0", gpuClass, gpuID, "0000:00:00.0")
	for name, s := range map[string]*small{
		"DMA": newDMA(), "DMA, other bits": free, "DMA, unread": unread,
		"DMA beside Vera": beside(newDMA(), veraID, 0x15, 0x1d),
		"C2C of Grace":    newC2C(graceID, 0x1d), "C2C of Vera": newC2C(veraID, 0x15),
		"C2C, switch without ACS": beside(newC2C(veraID, 0x15), veraID, 0x15, 0),
		"bare":                    bare(), "bare, no group": newInline(0, 0, 0, "", ""),
		"bare, other bits": newInline(0x62, 0x22, 0x62, "1", "1"), "bare, beside": beside(bare(), graceID, 0, 0),
		"guests": virtual(), "guests, beside": beside(virtual(), veraID, 0x15, 0x1d), "ordinary": ordinary,
	} {
		if got := s.findings(); got != "" {
			t.Errorf("%s:\n%s", name, got)
		}
	}
}

// wrong are machines with one wrong value each, and what the findings contain.
var wrong = map[string]struct {
	of   *small
	want []string
}{
	"DMA, function's port": {control(newDMA(), "0008:02:00.0", 0x1d), []string{"complex-acs warning",
		"0008:02:00.0 (the DMA function's downstream port): ACS control 0x001d, wanted xx110x1",
		`pci=config_acs="xx110x1@0008:02:00.0"`, "setpci -s 0008:02:00.0 ECAP_ACS+0x6.w=0019",
		"NVreg_GrdmaPciTopoCheckOverride"}},
	"DMA, off":        {control(newDMA(), "0008:02:00.0", 0), []string{"ECAP_ACS+0x6.w=0019"}},
	"DMA, GPU's port": {control(newDMA(), "0008:02:01.0", 0x1f), []string{"ECAP_ACS+0x6.w=0017"}},
	"DMA, root":       {control(newDMA(), "0008:00:00.0", 0x1d), []string{"xx111x0@0008:00:00.0"}},
	"DMA, inner port": {control(newDMA(), "0008:05:00.0", 0x11), []string{"xx111x1@0008:05:00.0"}},
	"DMA, NIC's root": {control(newDMA(), "0000:00:00.0", 0), []string{"xx111x1@0000:00:00.0"}},
	"DMA, Vera":       {beside(newDMA(), veraID, 0x1d, 0x1d), []string{"xx101x1@0001:00:00.0"}},
	"DMA, groups": {regroup(newDMA(), "0008:06:00.0", "9"), []string{"complex-iommu warning",
		"0008:03:00.0 has IOMMU group 4, 0008:06:00.0 has 9"}},
	"DMA, no group": {regroup(newDMA(), "0008:03:00.0", ""), []string{"0008:03:00.0 has no IOMMU group"}},
	"DMA, hidden":   {v3Of(newDMA(), "0008:03:00.0", ""), []string{"complex unknown", "V3"}},
	"DMA, hidden PF": {hiddenPF(newDMA()), []string{"complex unknown",
		"a PF beside NIC 0000:03:00.0 is unknown, and so whether DMA function 0008:03:00.0"}},
	"DMA, no NIC": {v3Of(newDMA(), "0000:03:00.0", "b"), []string{"complex warning", "0008:03:00.0"}},

	"C2C of Grace": {newC2C(graceID, 0x15), []string{"complex-acs warning",
		"xx111x1@0000:00:00.0;xx111x1@0008:00:00.0"}},
	"C2C of Vera":   {newC2C(veraID, 0x1d), []string{"xx101x1@0000:00:00.0", "ECAP_ACS+0x6.w=0015"}},
	"C2C, switch":   {beside(newC2C(graceID, 0x1d), graceID, 0x1d, 0x11), []string{"xx111x1@0001:02:00.0"}},
	"C2C, no group": {regroup(newC2C(graceID, 0x1d), "0008:01:00.0", ""), []string{"0008:01:00.0 has no"}},
	"C2C, group":    {regroup(newC2C(graceID, 0x1d), "0008:01:00.0", "5"), []string{"share IOMMU group 5"}},
	"C2C, ATS":      {atsOf(newC2C(graceID, 0x1d), "0000:01:00.0", true), []string{"ATS_ENABLED=0"}},

	"bare, NIC's port": {newInline(0, 0x1d, 0, "1", "1"), []string{"complex-acs warning", "wanted xx000x0",
		"ECAP_ACS+0x6.w=0000", "BIOS"}},
	"bare, GPU's port": {newInline(0, 0, 0x1f, "1", "1"), []string{"0000:02:01.0 ECAP_ACS+0x6.w=0002"}},
	"bare, root":       {newInline(0x1d, 0, 0, "1", "1"), []string{"0000:00:00.0 ECAP_ACS+0x6.w=0000"}},
	"bare, another switch": {beside(bare(), hostID, 0x1d, 0x1d), []string{"0001:02:00.0 (switch port)",
		"0001:02:00.0 ECAP_ACS+0x6.w=0000"}},
	"bare, Grace":  {beside(bare(), graceID, 0x1d, 0), []string{"xx000x0@0001:00:00.0"}},
	"bare, Vera":   {beside(bare(), veraID, 0x15, 0), []string{"xx000x0@0001:00:00.0"}},
	"bare, groups": {newInline(0, 0, 0, "1", "2"), []string{"complex-iommu warning"}},
	"undecided, ports": {undecided(0x1d), []string{"wanted xx000x0 (bare metal) or 1x111x1 (guests)",
		"(bare metal): setpci", "ECAP_ACS+0x6.w=005d"}},
	"undecided, ATS": {undecided(0), []string{"complex-ats warning", "ATS_ENABLED=0", "1x111x1"}},

	"guests, NIC's port": {control(virtual(), "0000:02:00.0", 0x1d), []string{"complex-acs warning",
		"wanted 1x111x1", "ECAP_ACS+0x6.w=005d"}},
	"guests, GPU's port": {control(virtual(), "0000:02:01.0", 0), []string{"xx111x1@0000:02:01.0"}},
	"guests, root":       {control(virtual(), "0000:00:00.0", 0x1c), []string{"ECAP_ACS+0x6.w=001d"}},
	"guests, no ATS":     {atsOf(virtual(), "0000:03:00.0", false), []string{"ATS_ENABLED=1"}},
	"guests, group":      {regroup(virtual(), "0000:04:00.0", "1"), []string{"share IOMMU group 1"}},
	"guests, switch":     {beside(virtual(), hostID, 0, 0x11), []string{"xx111x1@0001:02:00.0"}},
	"guests, Grace":      {beside(virtual(), graceID, 0, 0), []string{"xx111x1@0001:00:00.0"}},
	"guests, Vera":       {beside(virtual(), veraID, 0x1d, 0), []string{"xx101x1@0001:00:00.0"}},
	"guests by a VF":     {passedVF(), []string{"wanted 1x111x1", "ATS_ENABLED=1"}},
}

// TestComplexFindings: each row of the table with a wrong value.
func TestComplexFindings(t *testing.T) {
	t.Parallel()
	for name, c := range wrong {
		got := c.of.findings()
		for _, want := range c.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: want %q in\n%s", name, want, got)
			}
		}
	}
}

// TestReadComplexes reads IOMMU groups and hidden ports of a live node, and neither of a recorded machine.
func TestReadComplexes(t *testing.T) {
	t.Parallel()
	s := bare()
	s.find("0000:02:01.0").ACS = topology.ACSUnknown
	sys := fstest.MapFS{}
	n := Node{Tree: topology.Assemble(s.functions, s.places, []int{0, 1}), Sys: sys}
	if c := n.readComplexes(); len(c.unread)+len(c.groups) > 0 {
		t.Errorf("recorded machine: hidden %v, groups %v", c.unread, c.groups)
	}
	sys[topology.PCIDevices+"/0000:02:01.0/config"] = &fstest.MapFile{Data: make([]byte, 64)}
	sys["kernel/iommu_groups"] = &fstest.MapFile{Mode: fs.ModeDir}
	sys[topology.PCIDevices+"/0000:03:00.0/iommu_group"] = &fstest.MapFile{
		Data: []byte("../../../../kernel/iommu_groups/12"), Mode: fs.ModeSymlink,
	}
	n.complexes = n.readComplexes()
	groups := map[topology.Address]string{at("0000:03:00.0"): "12", at("0000:04:00.0"): ""}
	if got := n.complexes.groups; !maps.Equal(got, groups) {
		t.Errorf("groups %v", got)
	}
	found := runChecks(&n, ofRecording, hardwareChecks...)
	i := slices.IndexFunc(found, func(f Finding) bool { return f.ID == "acs-redirect" })
	if i < 0 || len(found[i].Evidence) != 1 || !strings.Contains(found[i].Evidence[0], "0000:02:01.0") {
		t.Errorf("hidden ports: %v", found)
	}
}
