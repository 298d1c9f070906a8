// SPDX-License-Identifier: Apache-2.0

// Package pools assigns the devices of a machine to resources, as a pure function of the configuration, a
// sysfs root and the PCI tree.
//
//	config.json ──ReadConfig──▶ Config ──Finder──▶ []Pool ──▶ []Device
//	                               sysfs, tree ──▲
//
// A [Selector] has the conditions, a function the values to compare. Properties that a container's namespaces
// hide come from earlier readings, see [Hidden]. [Finder.Explain] lists the devices that the selectors
// reject, with reasons.
//
// Facts about a function that the PCI tree does not contain are single files, vDPA devices, and SR-IOV facts,
// see [SRIOV]. A fact that cannot be read is an empty value, never an error that ends discovery. All facts
// are read below the root passed in, on a live node as well: these files have the same content as netlink,
// which works only for the local machine. On a live node SR-IOV facts come from sriovnet, which supports only
// /sys.
package pools

import (
	"cmp"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
)

// Finder makes pools of a machine.
type Finder struct {
	Sys    fs.FS  // sysfs: os.DirFS("/sys") on a live node, a recorded machine elsewhere
	Prefix string // of resources without a prefix, "intel.com"
	Dev    fs.FS  // the host's device nodes; nil if not to be seen: see container.HostNodes

	// SRIOV reads SR-IOV facts; nil for the files of Sys: see [SRIOVAt].
	SRIOV SRIOV

	// Tree reads the PCI tree; nil for topology.Read of Sys.
	Tree func() (*topology.Tree, error)
	// Routes lists the netdevs with a default route; nil for none: see rdma.DefaultRoutes.
	Routes func() (Routes, error)
	// Reserved are the reservations for the node's own network; nil for those of Routes: see FindReservations.
	Reserved Reservations
	// DDP returns the DDP package of a function or its PF; nil if not available: see rdma.DDPProfiles.
	DDP func(function, pf topology.Address) string

	// Exporter returns the health of NICs by device ID; nil if not available: see health.NICHealth.
	Exporter func() (map[string]bool, error)

	// Known has the properties that containers hide, by device ID: see Hidden.
	Known map[string]Hidden
}

// Find returns the pools of a configuration on the machine, in the order of the configuration, including
// empty pools, and warnings about names in the configuration that the machine does not have. A function
// belongs only to the first resource of resourceList that selects it; an HCA belongs to every resource of
// configList that selects it.
func (f Finder) Find(c *Config) ([]Pool, []string, error) {
	m, err := f.surveyMachine(c)
	if err != nil {
		return nil, nil, err
	}
	candidates := m.candidates
	claimed, shared := map[string]bool{}, map[topology.Address]bool{}
	pools, warnings := make([]Pool, 0, len(c.Resources)), slices.Concat(m.notes, warnMissing(c, candidates))
	m.told, err = f.askExporter(c)
	if err != nil {
		warnings = append(warnings, fmt.Sprintf("enableExporterHealthCheck: NICs count as healthy: %v", err))
	}
	for i := range c.Resources {
		r := &c.Resources[i]
		prefix, _, _ := strings.Cut(m.names[i], "/")
		same := func(p Pool) bool {
			return (strings.HasPrefix(p.Name, prefix+"/") || r.DeviceType == SharedHCA) &&
				p.Resource.DeviceType == r.DeviceType
		}
		pool := Pool{Name: m.names[i], Resource: r, First: !slices.ContainsFunc(pools, same)}
		if r.DeviceType == SharedHCA {
			var fewer []string
			pool.Devices, fewer = r.shareHCAs(candidates, shared)
			warnings = append(warnings, fewer...)
		} else {
			pool.Devices = r.claimDevices(candidates, claimed)
			warnings = append(warnings, r.warnNamed(candidates, pool)...)
		}
		pools = append(pools, pool)
	}
	return pools, warnings, nil
}

// surveyMachine reads the machine for the resources of a configuration.
func (f Finder) surveyMachine(c *Config) (*machine, error) {
	names, err := f.fullNames(c)
	if err != nil {
		return nil, fmt.Errorf("read configuration %s: %w", c.File, err)
	}
	if f.Tree == nil {
		f.Tree = func() (*topology.Tree, error) { return topology.Read(f.Sys) }
	}
	f.SRIOV = f.Functions()
	m := &machine{
		Finder: f, names: names, pfNames: map[topology.Address]string{},
		indexes: map[topology.Address]map[string]int{},
	}
	m.tree, err = f.Tree()
	if err != nil {
		return nil, err
	}
	if m.Reserved == nil {
		m.Reserved, m.notes, err = f.FindReservations()
		if err != nil {
			return nil, err
		}
	}
	m.findCandidates(c)
	return m, nil
}

// Functions returns the reader of the machine's SR-IOV facts.
func (f Finder) Functions() SRIOV { return cmp.Or[SRIOV](f.SRIOV, SRIOVFiles{Sys: f.Sys}) }

// askExporter returns the health from the metrics exporter, or nil if no resource uses the exporter.
func (f Finder) askExporter(c *Config) (map[string]bool, error) {
	if f.Exporter == nil || !c.Checks(func(h Health) bool { return h.CheckExporter }) {
		return nil, nil
	}
	return f.Exporter()
}

// findCandidates finds the devices that may be in a pool: functions with a driver, and their sub-functions.
func (m *machine) findCandidates(c *Config) {
	anySF := slices.ContainsFunc(c.Resources, func(r ResourceConfig) bool {
		return r.DeviceType == AuxNetDevice
	})
	for d := range m.tree.Devices() {
		if d.Driver == "" {
			continue
		}
		candidate := &function{Device: d, machine: m, needed: m.Reserved[d.Address.String()], withVFs: m.hasVFs(d)}
		m.candidates = append(m.candidates, candidate)
		if anySF && d.IsNIC() {
			m.candidates = append(m.candidates, candidate.findSubfunctions()...)
		}
	}
}

// fullNames returns the full name of each resource. It checks that they differ, which depends on the default
// prefix.
func (f Finder) fullNames(c *Config) ([]string, error) {
	var names []string
	for _, r := range c.Resources {
		prefix := cmp.Or(r.Prefix, f.Prefix)
		name := prefix + "/" + r.Name
		if !resourcePrefix.MatchString(prefix) {
			return nil, fmt.Errorf("resource %q: resourcePrefix %q is not a lower-case domain name such as intel.com",
				r.Name, prefix)
		}
		if slices.Contains(names, name) {
			return nil, fmt.Errorf("resource %q: resourceName is there twice, once with resourcePrefix %s",
				r.Name, prefix)
		}
		names = append(names, name)
	}
	return names, nil
}

// warnNamed warns of devices that are offered only because a selector names them.
func (r *ResourceConfig) warnNamed(candidates []*function, pool Pool) (warnings []string) {
	for _, f := range candidates {
		why := f.findReservation(r.DeviceType).Reason
		if _, offered := pool.Device(f.id()); offered && why != "" {
			warnings = append(warnings, fmt.Sprintf("resource %q: pciAddresses: %s is offered because it is named, "+
				"although %s", r.Name, f.id(), why))
		}
	}
	return warnings
}

// warnMissing warns of PFs and netdevs in a configuration that the machine does not have.
func warnMissing(c *Config, candidates []*function) []string {
	var warnings []string
	absent := func(r *ResourceConfig, s *Selector, key string, items []vfItem, pf func(*function) string) {
		for _, item := range items {
			has := func(f *function) bool { return r.canOffer(f, s) && strings.EqualFold(item.pf, pf(f)) }
			if !slices.ContainsFunc(candidates, has) {
				warnings = append(warnings, fmt.Sprintf("resource %q: selectors: %s: no %s belongs to the PF %q",
					r.Name, key, r.DeviceType.describeDevices(), item.pf))
			}
		}
	}
	for i := range c.Resources {
		r := &c.Resources[i]
		for k := range r.Selectors {
			s := &r.Selectors[k]
			absent(r, s, "pfNames", s.PFNames, (*function).pfName)
			absent(r, s, "rootDevices", s.RootDevices, pfAddressOf)
			for _, name := range s.ifNames {
				has := func(f *function) bool { return r.canOffer(f, s) && f.firstNetdev() == name }
				if !slices.ContainsFunc(candidates, has) {
					warnings = append(warnings, fmt.Sprintf("resource %q: ifNames: no HCA has the netdev %q", r.Name, name))
				}
			}
		}
	}
	return warnings
}
