// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/gpu/amd"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/topology"
)

// Machine contains the allocatable devices of a node at one moment. It is immutable.
type Machine struct {
	Tree  *topology.Tree
	GPUs  []GPU // ascending by card, then by partition
	VFs   []VF  // ascending by address, then by ID
	Links []topology.Link
	Pools []pools.Pool // of the VFs, in the order of the configuration
	Notes []string     // devices of the node that DRA cannot offer, and the reasons; sorted
	// Unread are the cards that may have further GPUs, because they cannot be read now; the zero address stands
	// for a card that is not known.
	Unread map[topology.Address]bool
}

// GPU is a GPU or a partition of a GPU.
type GPU struct {
	gpu.Device        // for a time-sliced GPU, the GPU itself: the ID is not that of a replica
	Resource   string // resource name of the device plugin, "amd.com/gpu"
	Vendor     string // "amd" or "nvidia"
	Model      string // "MI300X"; PCI IDs if the model is unknown
	Switch     string // the topmost bridge that it shares with another card, or its host bridge
	Hive       string // the lowest address of the GPUs connected by links; "" without links
	Parts      int    // number of partitions of its card, 1 for a whole GPU
	// Held names the holder other than a claim, for people: "pod team/train-0, by the device plugin"; "" for
	// none.
	Held string
}

// Whole reports whether the GPU is not a partition.
func (g GPU) Whole() bool { return g.Parts == 1 && g.Part == "" }

// VF is a VF, a PF without VFs that is offered as one, or a sub-function.
type VF struct {
	pools.Device        // for a shared HCA, the HCA itself: the ID is not that of a replica
	Pool         string // resource name of the device plugin, "tandem.dev/rdma_vf"
	Switch       string // as for a GPU
	RDMA         string // "mlx5_5", also while a container hides it; "" for none
	Netdev       string // as the node calls it; "" for none, and while a container has it
	Index        int    // its index among the VFs of its PF, from 0; 0 of anything else
	Held         string // as of a GPU
}

// MachineSources are the inputs of NewMachine.
type MachineSources struct {
	Sys   fs.FS // sysfs, for the names of RDMA devices
	Tree  *topology.Tree
	GPUs  map[string][]gpu.Device // by resource name, as found by a backend or as kept
	Links []topology.Link
	Pools []pools.Pool // in the order of the configuration
	// MayHide reports whether a card may have further GPUs; nil for none.
	MayHide func(card topology.Address) bool
}

// NewMachine returns the devices of a machine. It contains each device once, even if several resources offer
// it or several containers may share it, because a claim holds a device exclusively. It omits gone devices
// and includes unhealthy ones.
func NewMachine(s MachineSources) Machine {
	b := machineBuilder{MachineSources: s}
	b.addGPUs()
	b.addVFs()
	slices.Sort(b.notes)
	return Machine{
		Tree: s.Tree, GPUs: b.gpus, VFs: b.vfs, Links: s.Links, Pools: s.Pools, Notes: slices.Compact(b.notes),
		Unread: s.findUnread(),
	}
}

// findUnread returns the cards that may have further GPUs.
func (s MachineSources) findUnread() map[topology.Address]bool {
	if s.MayHide == nil {
		return nil
	}
	unread := map[topology.Address]bool{{}: s.MayHide(topology.Address{})}
	for d := range s.Tree.Devices() {
		if gpu.Vendor(d) != "" {
			unread[d.Address] = s.MayHide(d.Address)
		}
	}
	return unread
}

// LacksGPU reports whether the machine has no GPU of a unit: false while the card of the unit cannot be read.
func (m Machine) LacksGPU(unit string) bool {
	if slices.ContainsFunc(m.GPUs, func(g GPU) bool { return g.Unit().Name == unit }) {
		return false
	}
	card, _, unknown := topology.ParseUnit(unit)
	_, isThere := m.Tree.Device(card)
	return unknown == nil && !isThere || !m.Unread[card]
}

// Pool returns the pool of VFs of a resource, with the devices that NewMachine omits.
func (m Machine) Pool(name string) (pools.Pool, bool) {
	i := slices.IndexFunc(m.Pools, func(p pools.Pool) bool { return p.Name == name })
	if i < 0 {
		return pools.Pool{}, false
	}
	return m.Pools[i], true
}

// machineBuilder builds a Machine.
type machineBuilder struct {
	MachineSources
	gpus  []GPU
	vfs   []VF
	notes []string
}

func (b *machineBuilder) addNote(sentence string) { b.notes = append(b.notes, sentence) }

// Failure returns why no container can use the GPU, for people; "" for a healthy one.
func (g GPU) Failure() string {
	if g.Healthy {
		return ""
	}
	return strings.TrimSuffix("GPU "+g.ID+" is unhealthy: "+g.Reason, ": ")
}

// Unusable returns why no claim can get the GPU, for people; "" if claims can.
func (g GPU) Unusable() string { return whyUnusable(g.Failure(), "GPU "+g.ID, g.Held) }

// Failure returns why no container can use the VF, for people; "" for a healthy one.
func (v VF) Failure() string {
	if v.Fault == "" {
		return ""
	}
	return "VF " + v.ID + " is unhealthy: " + v.Fault
}

// Unusable returns why no claim can get the VF, for people; "" if claims can.
func (v VF) Unusable() string { return whyUnusable(v.Failure(), "VF "+v.ID, v.Held) }

// Failure returns why one of some GPUs and VFs, by ID, is unhealthy or gone; "" if all are healthy.
func (m Machine) Failure(parts []string) (failure string) {
	for _, id := range parts {
		gpu := slices.IndexFunc(m.GPUs, func(g GPU) bool { return g.ID == id })
		vf := slices.IndexFunc(m.VFs, func(v VF) bool { return v.ID == id })
		switch {
		case gpu >= 0:
			failure = cmp.Or(failure, m.GPUs[gpu].Failure())
		case vf >= 0:
			failure = cmp.Or(failure, m.VFs[vf].Failure())
		default:
			return "the node no longer has " + id
		}
	}
	return failure
}

func whyUnusable(failure, what, held string) string {
	if failure == "" && held != "" {
		return what + " is in use by " + held
	}
	return failure
}

// DefaultPool is the resource name of VFs without a configuration.
const DefaultPool = "tandem.dev/rdma_vf"

// ReadMachine returns the devices of a machine from sysfs only, for recorded machines: NVIDIA GPUs are whole
// and without links, with their address as ID, because only NVML has more data. Without pools it includes the
// VFs of all NICs with RDMA, in [DefaultPool].
func ReadMachine(sys fs.FS, tree *topology.Tree, offered []pools.Pool) (Machine, error) {
	s := MachineSources{Sys: sys, Tree: tree, GPUs: map[string][]gpu.Device{}, Pools: offered}
	var notes []string
	switch found, err := readAMD(sys); {
	case err == nil:
		maps.Copy(s.GPUs, found.Resources)
		notes = found.Notes
	case !gpu.IsNoDriver(err):
		return Machine{}, err
	}
	links, err := amd.ReadLinks(sys)
	if err != nil {
		return Machine{}, fmt.Errorf("read links of GPUs: %w", err)
	}
	s.Links = links
	addUnread(s.GPUs, tree)
	if offered == nil {
		s.Pools = []pools.Pool{{Name: DefaultPool, Devices: allRDMA(tree)}}
	}
	machine := NewMachine(s)
	machine.Notes = append(machine.Notes, notes...)
	return machine, nil
}

// readAMD reads AMD's GPUs under one resource name if possible, which is the default, else under one name per
// partitioning.
func readAMD(sys fs.FS) (gpu.Inventory, error) {
	found, err := amd.Read(sys, amd.Single)
	if err != nil && !gpu.IsNoDriver(err) {
		return amd.Read(sys, amd.Mixed)
	}
	return found, err
}

// addUnread adds the GPUs without a driver, as whole GPUs.
func addUnread(found map[string][]gpu.Device, tree *topology.Tree) {
	known := map[topology.Address]bool{}
	for _, devices := range found {
		for _, d := range devices {
			known[d.Card] = true
		}
	}
	for d := range tree.Devices() {
		maker, ok := gpu.MakerOf(gpu.Vendor(d))
		if !ok || known[d.Address] {
			continue
		}
		found[maker.Resource] = append(found[maker.Resource],
			gpu.Device{ID: d.Address.String(), Card: d.Address, NUMA: d.NUMA, Healthy: true})
	}
}

// allRDMA returns all functions with RDMA.
func allRDMA(tree *topology.Tree) (list []pools.Device) {
	for _, d := range tree.RDMAFunctions() {
		list = append(list, pools.Device{
			ID: d.Address.String(), Address: d.Address, PF: d.PF, NUMA: d.NUMA, Selector: new(pools.Selector),
		})
	}
	return list
}

// addGPUs adds the GPUs of all resources.
func (b *machineBuilder) addGPUs() {
	seen := map[string]bool{}
	parts := map[topology.Address]int{}
	hives := findHives(b.Links)
	for _, resource := range slices.Sorted(maps.Keys(b.GPUs)) {
		for _, d := range b.GPUs[resource] {
			id, replica := topology.CutReplica(d.ID)
			if replica {
				const once = "%s: its GPUs are handed out once each: a claim does not share a GPU by time"
				b.addNote(fmt.Sprintf(once, resource))
			}
			if d.Gone || seen[id] {
				continue
			}
			function, ok := b.Tree.Device(d.Card)
			if !ok {
				b.addNote(fmt.Sprintf("GPU %s is left out: sysfs has no PCI function %s", id, d.Card))
				continue
			}
			seen[id] = true
			parts[d.Card]++
			d.ID = id
			b.gpus = append(b.gpus, GPU{
				Device: d, Resource: resource, Vendor: gpu.Vendor(function), Model: gpu.Model(function),
				Switch: b.Tree.Switch(d.Card), Hive: hives[d.Card],
			})
		}
	}
	for i := range b.gpus {
		b.gpus[i].Parts = parts[b.gpus[i].Card]
	}
	slices.SortFunc(b.gpus, compareGPUs)
}

// compareGPUs orders the partitions of a card by number.
func compareGPUs(a, b GPU) int {
	return cmp.Or(a.Card.Compare(b.Card), cmp.Compare(len(a.Part), len(b.Part)), cmp.Compare(a.Part, b.Part),
		cmp.Compare(a.ID, b.ID))
}

// findHives returns for every card with links the lowest card that is reachable over links.
func findHives(links []topology.Link) map[topology.Address]string {
	lowest := map[topology.Address]topology.Address{}
	root := func(a topology.Address) topology.Address {
		for lowest[a] != a {
			a = lowest[a]
		}
		return a
	}
	for _, link := range links {
		for _, card := range []topology.Address{link.A, link.B} {
			if _, ok := lowest[card]; !ok {
				lowest[card] = card
			}
		}
		a, b := root(link.A), root(link.B)
		if a.Compare(b) > 0 {
			a, b = b, a
		}
		lowest[b] = a
	}
	names := make(map[topology.Address]string, len(lowest))
	for card := range lowest {
		names[card] = root(card).String()
	}
	return names
}

// addVFs adds the devices of all pools. A device of several pools belongs to the first one.
func (b *machineBuilder) addVFs() {
	owner := map[string]string{} // pool by device ID
	for _, pool := range b.Pools {
		if pool.Resource != nil && pool.Resource.DeviceType == pools.Accelerator {
			b.addNote(fmt.Sprintf("%s is left out: its accelerators are offered as GPUs", pool.Name))
			continue
		}
		for _, d := range pool.Devices {
			b.addVF(pool.Name, d, owner)
		}
	}
	slices.SortFunc(b.vfs, func(v, w VF) int { return v.Compare(w.Device) })
}

func (b *machineBuilder) addVF(pool string, d pools.Device, owner map[string]string) {
	id, replica := topology.CutReplica(d.ID)
	if replica {
		b.addNote(fmt.Sprintf("%s: its HCAs are handed out once each: a claim does not share an HCA", pool))
	}
	if d.Missing() {
		return
	}
	if first, known := owner[id]; known {
		if first != pool {
			b.addNote(fmt.Sprintf("%s: %s belongs to %s: a device has one resource", pool, id, first))
		}
		return
	}
	owner[id] = pool
	function, ok := b.Tree.Device(d.Address)
	if !ok {
		b.addNote(fmt.Sprintf("%s: %s is left out: sysfs has no PCI function %s", pool, id, d.Address))
		return
	}
	d.ID, d.HCA = id, ""
	v := VF{Device: d, Pool: pool, Switch: b.Tree.Switch(d.Address), Index: b.vfIndex(function)}
	if d.Aux == "" && len(function.Netdevs) > 0 {
		v.Netdev = function.Netdevs[0]
	}
	if names := pools.RDMADevices(b.Sys, d.Address, d.Aux); len(names) > 0 {
		v.RDMA = names[0]
	}
	b.vfs = append(b.vfs, v)
}

// vfIndex returns the index of a VF among the VFs of its PF.
func (b *machineBuilder) vfIndex(function *topology.Device) int {
	pf, ok := b.Tree.Device(function.PF)
	if !function.IsVF() || !ok {
		return 0
	}
	return max(slices.Index(pf.VFs, function.Address), 0)
}
