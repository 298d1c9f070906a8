package rdma

import (
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
)

// Pool is what one resource name stands for on a machine.
type Pool struct {
	Name    string   // "intel.com/mlnx_vf"
	Devices []Device // ascending by address

	resource *ResourceConfig
}

// Device is one function of a pool, mostly a VF.
type Device struct {
	ID      string            // the kubelet's device ID: the full PCI address, as CNI plugins expect
	Address topology.Address  // the same as an address
	PF      topology.Address  // of a VF; the zero Address for anything else
	NUMA    topology.NUMANode // unknown too where the resource has excludeTopology

	selector *Selector // the one that selected it; its options apply
}

// Finder makes pools of a machine.
type Finder struct {
	Sys      fs.FS    // sysfs: os.DirFS("/sys") on a live node, a recorded machine elsewhere
	Prefix   string   // of resources that name none, "intel.com"
	Reserved []string // netdevs that the node itself needs: see DefaultRoutes
}

// Discover returns the pools that a configuration makes of the machine below a sysfs root, in the order of the
// configuration, empty ones included.
func Discover(sys fs.FS, c *Config, prefix string) ([]Pool, error) {
	pools, _, err := Finder{Sys: sys, Prefix: prefix}.Find(c)
	return pools, err
}

// Find returns the pools, and warnings about what in the configuration the machine does not have. A function is in the
// first resource of the file that selects it, and in no other.
func (f Finder) Find(c *Config) ([]Pool, []string, error) {
	names, err := f.names(c)
	if err != nil {
		return nil, nil, fmt.Errorf("read configuration %s: %w", c.File, err)
	}
	tree, err := topology.Read(f.Sys)
	if err != nil {
		return nil, nil, err
	}
	m := newMachine(f.Sys, tree)
	candidates := f.candidates(m)
	claimed := map[topology.Address]bool{}
	pools := make([]Pool, len(c.Resources))
	for i := range c.Resources {
		pools[i] = Pool{Name: names[i], Devices: c.Resources[i].claim(candidates, claimed), resource: &c.Resources[i]}
	}
	return pools, missing(c, candidates), nil
}

// claim takes the functions that the resource selects and nobody has claimed, selector by selector.
func (r *ResourceConfig) claim(candidates []*function, claimed map[topology.Address]bool) []Device {
	var devices []Device
	for i := range r.Selectors {
		for _, f := range candidates {
			if !claimed[f.Address] && r.offers(f) && r.Selectors[i].selects(f) {
				claimed[f.Address] = true
				devices = append(devices, r.device(f, &r.Selectors[i]))
			}
		}
	}
	slices.SortFunc(devices, func(a, b Device) int { return a.Address.Compare(b.Address) })
	return devices
}

// Offered returns the pools that have devices, and logs what of the configuration has no effect. A pool without any is
// not to be offered, so that the node does not have its resource at all.
func (f Finder) Offered(c *Config, log *slog.Logger) ([]Pool, error) {
	pools, warnings, err := f.Find(c)
	if err != nil {
		return nil, err
	}
	for _, warning := range slices.Concat(c.Warnings, warnings) {
		log.Warn("configuration", "file", c.File, "note", warning)
	}
	return slices.DeleteFunc(pools, func(p Pool) bool {
		if len(p.Devices) == 0 {
			log.Warn("no device: resource is not offered", "resource", p.Name)
			return true
		}
		log.Info("discover", "resource", p.Name, "devices", len(p.Devices))
		return false
	}), nil
}

func (r *ResourceConfig) device(f *function, s *Selector) Device {
	d := Device{ID: f.Address.String(), Address: f.Address, PF: f.PF, NUMA: f.NUMA, selector: s}
	if r.ExcludeTopology {
		d.NUMA = topology.NUMANode{}
	}
	return d
}

// offers reports whether a function is of the resource's device type. The classes are those of SupportedDevices in
// pkg/types/types.go of the stock plugin.
func (r *ResourceConfig) offers(f *function) bool {
	switch r.DeviceType {
	case NetDevice:
		return f.Class.IsNetwork() && !f.inUse
	case Accelerator:
		return f.Class>>16 == 0x12
	default:
		return false
	}
}

// candidates are the functions that may be in a pool: those with a driver. A network function is in use, and no
// candidate for netDevice, if it is a PF that has VFs or if the node itself needs its netdev.
func (f Finder) candidates(m *machine) []*function {
	needed := f.needed()
	var candidates []*function
	for d := range m.tree.Devices() {
		if d.Driver != "" {
			candidates = append(candidates, &function{Device: d, machine: m, inUse: needed[d.Address] || m.hasVFs(d)})
		}
	}
	return candidates
}

// needed returns the functions of the reserved netdevs. The last address on the way to a netdev is its function, also for
// one that does not hang right below (virtio), which the stock plugin hands out.
func (f Finder) needed() map[topology.Address]bool {
	needed := map[topology.Address]bool{}
	for _, netdev := range f.Reserved {
		target, err := fs.ReadLink(f.Sys, path.Join("class/net", netdev))
		if err != nil {
			continue // a netdev without a device
		}
		for _, element := range slices.Backward(strings.Split(target, "/")) {
			if a, err := topology.ParseAddress(element); err == nil {
				needed[a] = true
				break
			}
		}
	}
	return needed
}

// hasVFs reads sriov_numvfs, as the stock plugin does; a PF with links to VFs has some even where that file is absent.
func (m *machine) hasVFs(d *topology.Device) bool {
	numvfs := readText(m.sys, inFunction(d.Address.String(), "sriov_numvfs"))
	return len(d.VFs) > 0 || (numvfs != "" && numvfs != "0")
}

// resourcePrefix is what the kubelet accepts before the slash (IsDNS1123Subdomain in k8s.io/apimachinery/pkg/util/validation).
var resourcePrefix = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`)

// names gives each resource its full name. They have to differ, which shows only now that the other prefix is known.
func (f Finder) names(c *Config) ([]string, error) {
	var names []string
	for _, r := range c.Resources {
		prefix := f.Prefix
		if r.Prefix != "" {
			prefix = r.Prefix
		}
		name := prefix + "/" + r.Name
		if !resourcePrefix.MatchString(prefix) {
			return nil, fmt.Errorf("resource %q: resourcePrefix %q is not a lower-case domain name such as intel.com", r.Name, prefix)
		}
		if slices.Contains(names, name) {
			return nil, fmt.Errorf("resource %q: resourceName is there twice, once with resourcePrefix %s", r.Name, prefix)
		}
		names = append(names, name)
	}
	return names, nil
}

// missing warns of PFs that a configuration names and the machine does not have.
func missing(c *Config, candidates []*function) []string {
	var warnings []string
	absent := func(name, key string, items []vfItem, pf func(*function) string) {
		for _, item := range items {
			has := func(f *function) bool { return strings.EqualFold(item.pf, pf(f)) }
			if !slices.ContainsFunc(candidates, has) {
				warnings = append(warnings, fmt.Sprintf("resource %q: selectors: %s: no VF with a driver belongs to the PF %q", name, key, item.pf))
			}
		}
	}
	for _, r := range c.Resources {
		if r.DeviceType != NetDevice {
			continue
		}
		for _, s := range r.Selectors {
			absent(r.Name, "pfNames", s.PFNames, (*function).pfName)
			absent(r.Name, "rootDevices", s.RootDevices, (*function).pfAddress)
		}
	}
	return warnings
}
