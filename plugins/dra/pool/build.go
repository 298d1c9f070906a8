// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
)

// builder builds a pool.
type builder struct {
	machine Machine
	options Options
	groups  []*group
	others  []*VF // VFs that cannot be paired with a GPU
	vfs     map[string]*VF
	inUse   map[string]bool // IDs of the VFs of claims
	unfit   map[string]bool // IDs of VFs that usable VFs precede
	units   [][]item
	notes   []string
}

// item is a device of the pool.
type item struct {
	Device
	gpus []*GPU
	vfs  []*VF
	rank rank
}

// rank orders the devices of a slice. Pairs come first, because claims for pairs are the most time-critical.
type rank int

const (
	rankBundle rank = iota
	rankPair
	rankGPU       // GPUs without a near or free VF
	rankPairedGPU // GPUs that a pair could use
	rankVF        // VFs that no pair needs
	rankPairedVF
)

func newItem(t Type, name string, r rank, gpus []*GPU, vfs []*VF) item {
	i := item{Device: Device{Name: string(t) + "-" + name, Type: t}, gpus: gpus, rank: r}
	for _, gpu := range gpus {
		i.GPUs = append(i.GPUs, gpu.ID)
	}
	return i.withVFs(vfs...)
}

func gpuAlone(gpu *GPU, r rank) item {
	return newItem(TypeGPU, gpuName(gpu), r, []*GPU{gpu}, nil)
}

func vfAlone(vf *VF, r rank) item {
	return newItem(TypeVF, vfName(vf), r, nil, []*VF{vf})
}

// gpuWithVF returns a GPU and its VF as one device. Its name is not that of the GPU alone: a claim for a pair
// that was allocated the device never gets a GPU without a VF.
func gpuWithVF(gpu *GPU, vf ...*VF) item {
	return newItem(TypeGPUVF, gpuName(gpu), rankPairedGPU, []*GPU{gpu}, vf)
}

// reservedPair returns a GPU with its reserved VF. It is named after the GPU.
func reservedPair(gpu *GPU, vf ...*VF) item {
	return newItem(TypePair, gpuName(gpu), rankPair, []*GPU{gpu}, vf)
}

// bundleOf returns the partitions of a card, without VFs.
func bundleOf(card ...*GPU) item {
	return newItem(TypeBundle, addressName(card[0].Card), rankBundle, card, nil)
}

// namedPair returns a GPU with one of several VFs. It is named after both.
func namedPair(gpu *GPU, vf *VF) item {
	return newItem(TypePair, gpuName(gpu)+"-"+vfName(vf), rankPair, []*GPU{gpu}, []*VF{vf})
}

func newBuilder(machine Machine, options Options) *builder {
	b := &builder{
		machine: machine, options: options, vfs: map[string]*VF{}, inUse: map[string]bool{},
		unfit: map[string]bool{}, notes: slices.Clone(machine.Notes),
	}
	for _, id := range options.Bound {
		b.inUse[id] = true
	}
	for i := range machine.VFs {
		vf := &machine.VFs[i]
		b.vfs[vf.ID] = vf
		if options.Bound[vfAlone(vf, rankVF).Name] != "" { // also where the claim has another VF in its place
			b.inUse[vf.ID] = true
		}
		b.unfit[vf.ID] = vf.Unusable() != "" && (vf.Held != "" || !options.WasSound[vf.ID])
	}
	b.noteLongNames()
	b.groups, b.others = newGroups(&b.machine, b.publishedVFs())
	bound := b.boundVFs()
	for _, g := range b.groups {
		g.matchPartners(machine.Links, bound, b.inUse, b.unfit)
	}
	return b
}

// noteLongNames adds a note about resources that are published without their name.
func (b *builder) noteLongNames() {
	var long []string
	check := func(resource string) {
		if len(resource) > resourceapi.DeviceAttributeMaxValueLength && !slices.Contains(long, resource) {
			long = append(long, resource)
			b.addNote("resource %s: a name of more than %d characters is not published: Multus does not find its "+
				"devices", resource, resourceapi.DeviceAttributeMaxValueLength)
		}
	}
	for _, gpu := range b.machine.GPUs {
		check(gpu.Resource)
	}
	for _, vf := range b.machine.VFs {
		check(vf.Pool)
	}
}

// publishedVFs returns the VFs within the limit, usable ones first, and VFs of claims.
func (b *builder) publishedVFs() []*VF {
	all := make([]*VF, 0, len(b.vfs))
	for i := range b.machine.VFs {
		all = append(all, &b.machine.VFs[i])
	}
	byIndex := func(v, w *VF) int {
		return cmp.Or(v.Function().Compare(w.Function()), cmp.Compare(v.Index, w.Index))
	}
	slices.SortStableFunc(all, byIndex)
	if b.options.VFsPerPF <= 0 {
		return all
	}
	perPF := map[string]int{}
	isUnfit := func(v *VF) bool { return b.unfit[v.ID] }
	usableFirst := append(slices.DeleteFunc(slices.Clone(all), isUnfit),
		slices.DeleteFunc(slices.Clone(all), func(v *VF) bool { return !isUnfit(v) })...)
	kept := slices.DeleteFunc(usableFirst, func(v *VF) bool {
		pf := v.Function().String()
		perPF[pf]++
		return perPF[pf] > b.options.VFsPerPF && !b.inUse[v.ID]
	})
	slices.SortStableFunc(kept, byIndex)
	if left := len(all) - len(kept); left > 0 {
		b.addNote("%d of %d VFs are published, %d of a PF at the most", len(kept), len(all), b.options.VFsPerPF)
	}
	return kept
}

func (b *builder) addNote(format string, args ...any) {
	b.notes = append(b.notes, fmt.Sprintf(format, args...))
}

// addUnit adds devices that change together and therefore belong to one slice.
func (b *builder) addUnit(items ...item) {
	if len(items) > 0 {
		b.units = append(b.units, items)
	}
}

// addSurplus adds the VFs that no pair has, or can have when its GPU becomes free, in rounds over the PFs:
// consecutive devices are spread over all PFs, have the same index, and are near the GPUs that are allocated
// first.
func (b *builder) addSurplus() {
	paired := map[*VF]bool{}
	eachItem(b.units, func(i *item) {
		for _, vf := range i.vfs {
			paired[vf] = true
		}
	})
	for _, g := range b.groups {
		for _, vf := range g.reserved {
			paired[vf] = paired[vf] || b.options.Bound[vfAlone(vf, rankVF).Name] == ""
		}
	}
	var surplus []*VF
	for _, g := range b.groups {
		surplus = append(surplus, g.vfs...)
	}
	surplus = slices.DeleteFunc(append(surplus, b.others...), func(vf *VF) bool { return paired[vf] })
	for _, vf := range byRail(surplus) {
		i := vfAlone(vf, rankVF)
		if b.inUse[vf.ID] && b.options.Bound[i.Name] == "" {
			continue // a claim holds the VF through another device, which no counter separates from this device
		}
		b.addUnit(i)
	}
}

// joinNames lists the first of many names.
func joinNames(list []string) string {
	const most = 8
	if len(list) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ", "), len(list)-most)
	}
	return strings.Join(list, ", ")
}

// eachItem calls do for every device.
func eachItem(units [][]item, do func(*item)) {
	for _, unit := range units {
		for i := range unit {
			do(&unit[i])
		}
	}
}

// boundVFs contains the VFs that claims hold together with GPUs, by the GPU's ID.
func (b *builder) boundVFs() map[string]*VF {
	bound := map[string]*VF{}
	for _, name := range slices.Sorted(maps.Keys(b.options.Bound)) {
		i, vf := b.machine.named(name), b.vfs[b.options.Bound[name]]
		if vf != nil && len(i.GPUs) == 1 {
			bound[i.GPUs[0]] = vf
		}
	}
	return bound
}

// addBound adds devices of claims that would no longer be published: otherwise the scheduler would not know
// their consumption. They cannot be allocated while devices that share with them are allocated.
func (b *builder) addBound() {
	published := map[string]bool{}
	eachItem(b.units, func(i *item) { published[i.Name] = true })
	for _, name := range slices.Sorted(maps.Keys(b.options.Bound)) {
		i, vf := b.machine.named(name), b.vfs[b.options.Bound[name]]
		switch {
		case published[name]:
		case i.Type == TypeVF:
			b.addUnit(i)
		case vf != nil && (i.Type == TypePair || i.Type == TypeGPUVF):
			b.addUnit(i.withVFs(vf))
		}
	}
}

// named returns the device of a name with the parts that the name tells, without a type if the machine lacks
// one: a pair that is named after its GPU alone has no VF yet.
func (m *Machine) named(name string) item {
	if vf := m.vfNamed(string(TypeVF)+"-", name); vf != nil {
		return vfAlone(vf, rankVF)
	}
	var card []*GPU
	for i := range m.GPUs {
		gpu := &m.GPUs[i]
		if !strings.Contains(name, addressName(gpu.Card)) {
			continue
		}
		for _, whole := range []item{reservedPair(gpu), gpuAlone(gpu, rankPairedGPU), gpuWithVF(gpu)} {
			if name == whole.Name {
				return whole
			}
		}
		if vf := m.vfNamed(reservedPair(gpu).Name+"-", name); vf != nil {
			return namedPair(gpu, vf)
		}
		if name == bundleOf(gpu).Name {
			card = append(card, gpu)
		}
	}
	if !isPartitioned(card) {
		return item{}
	}
	return bundleOf(card...)
}

// vfNamed returns the VF whose name follows a prefix of a device's name; nil for none.
func (m *Machine) vfNamed(prefix, name string) *VF {
	of, is := strings.CutPrefix(name, prefix)
	for i := range m.VFs {
		if is && vfName(&m.VFs[i]) == of {
			return &m.VFs[i]
		}
	}
	return nil
}

// withVFs returns the device with VFs.
func (i item) withVFs(vfs ...*VF) item {
	i.vfs, i.VFs = vfs, nil
	for _, vf := range vfs {
		i.VFs = append(i.VFs, vf.ID)
	}
	return i
}

// Find returns the device of a name, and reports whether the machine has its parts. A claim is prepared after
// its allocation: meanwhile other names may be published, as they follow the features of the cluster, the
// number of VFs, their faults and the claims. If the name does not tell the VF, it is the one that the GPU is
// published with, else the nearest usable one.
func (p Pool) Find(machine Machine, name string) (Device, bool) {
	if d, published := p.Devices[name]; published {
		return d, true
	}
	i := machine.named(name)
	if len(i.VFs) > 0 || i.Type == TypeGPU {
		return i.Device, true
	}
	var vfs []*VF
	for _, gpu := range i.gpus {
		its := slices.Concat(p.Devices[reservedPair(gpu).Name].VFs, p.Devices[gpuWithVF(gpu).Name].VFs)
		near := machine.VFsNear(gpu)
		for _, is := range []func(*VF) bool{
			func(vf *VF) bool { return slices.Contains(its, vf.ID) },
			func(vf *VF) bool { return vf.Unusable() == "" },
			func(*VF) bool { return true },
		} {
			isNew := func(vf *VF) bool { return is(vf) && !slices.Contains(vfs, vf) }
			if at := slices.IndexFunc(near, isNew); at >= 0 {
				vfs = append(vfs, near[at])
				break
			}
		}
	}
	return i.withVFs(vfs...).Device, len(vfs) > 0 || i.Type == TypeGPUVF || i.Type == TypeBundle
}

// VFsNear returns the VFs that a GPU can be paired with, nearest first. On a node with RDMA they have RDMA.
func (m *Machine) VFsNear(gpu *GPU) (near []*VF) {
	rdma := slices.ContainsFunc(m.VFs, func(vf VF) bool { return vf.RDMA != "" })
	g := group{tree: m.Tree}
	for i := range m.VFs {
		if vf := &m.VFs[i]; g.canPair(gpu, vf) && (vf.RDMA != "" || !rdma) {
			near = append(near, vf)
		}
	}
	slices.SortStableFunc(near, func(v, w *VF) int {
		return m.Tree.Distance(gpu.Card, v.Address).Compare(m.Tree.Distance(gpu.Card, w.Address))
	})
	return near
}

// claimed is the consumption that the scheduler knows: the published devices of claims, and the counters that
// they consume.
type claimed struct {
	devices, counters map[string]bool
}

func (b *builder) claimedParts(c *counters) claimed {
	names := map[string]bool{}
	for name := range b.options.Bound {
		names[name] = true
	}
	for _, name := range b.options.InUse {
		names[name] = true
	}
	taken := claimed{map[string]bool{}, map[string]bool{}}
	eachItem(b.units, func(i *item) {
		isPublished := b.options.Taints || len(listTaints(i, "")) == 0
		if isPublished && names[i.Name] {
			taken.devices[i.Name] = true
			for _, counter := range c.countersOf(i) {
				taken.counters[counter] = true
			}
		}
	})
	return taken
}

// inUseBy returns the device through which a claim holds a part of d without the scheduler's knowledge: the
// claim's device is not published, or now has other parts. It returns "" for all other devices.
func (b *builder) inUseBy(i *item, c *counters, taken claimed) string {
	isTaken := func(counter string) bool { return taken.counters[counter] }
	if taken.devices[i.Name] || slices.ContainsFunc(c.countersOf(i), isTaken) {
		return ""
	}
	for _, id := range slices.Concat(i.GPUs, i.VFs) {
		if by := b.options.InUse[id]; by != "" {
			return by
		}
	}
	return ""
}
