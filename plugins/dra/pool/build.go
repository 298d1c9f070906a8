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
	i := item{Device: Device{Name: string(t) + "-" + name, Type: t}, gpus: gpus, vfs: vfs, rank: r}
	for _, gpu := range gpus {
		i.GPUs = append(i.GPUs, gpu.ID)
	}
	for _, vf := range vfs {
		i.VFs = append(i.VFs, vf.ID)
	}
	return i
}

func gpuAlone(gpu *GPU, r rank) item {
	return newItem(TypeGPU, gpuName(gpu), r, []*GPU{gpu}, nil)
}

func vfAlone(vf *VF, r rank) item {
	return newItem(TypeVF, vfName(vf), r, nil, []*VF{vf})
}

// gpuWithVF returns a GPU and its VF as one device. Its name is not that of the GPU alone: a claim for a pair
// that was allocated the device never gets a GPU without a VF.
func gpuWithVF(gpu *GPU, vf *VF) item {
	return newItem(TypeGPUVF, gpuName(gpu), rankPairedGPU, []*GPU{gpu}, []*VF{vf})
}

// reservedPair returns a GPU with its reserved VF. It is named after the GPU.
func reservedPair(gpu *GPU, vf *VF) item {
	return newItem(TypePair, gpuName(gpu), rankPair, []*GPU{gpu}, []*VF{vf})
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
		if options.InUse[vf.ID] == vfAlone(vf, rankVF).Name { // also where the claim has another VF in its place
			b.inUse[vf.ID] = true
		}
		b.unfit[vf.ID] = vf.Unusable() != "" && (vf.Held != "" || !options.FailedLater[vf.ID])
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
	for i := range b.machine.GPUs {
		gpu := &b.machine.GPUs[i]
		for name, id := range b.options.Bound {
			if vf := b.vfs[id]; vf != nil && (name == gpuAlone(gpu, 0).Name || isPair(name, gpu, vf)) {
				bound[gpu.ID] = vf
			}
		}
	}
	return bound
}

// isPair reports whether a device is the pair of a GPU and a VF, under any of its possible names.
func isPair(name string, gpu *GPU, vf *VF) bool {
	return slices.ContainsFunc(pairItems(gpu, vf), func(i item) bool { return i.Name == name })
}

// pairItems returns the possible devices of a GPU and a VF.
func pairItems(gpu *GPU, vf *VF) []item {
	return []item{reservedPair(gpu, vf), namedPair(gpu, vf), gpuWithVF(gpu, vf)}
}

// addBound adds devices of claims that would no longer be published: otherwise the scheduler would not know
// their consumption. They cannot be allocated while devices that share with them are allocated.
func (b *builder) addBound() {
	published := map[string]bool{}
	eachItem(b.units, func(i *item) { published[i.Name] = true })
	for _, name := range slices.Sorted(maps.Keys(b.options.Bound)) {
		if published[name] {
			continue
		}
		if i, ok := deviceNamed(b.machine, name, b.vfs[b.options.Bound[name]]); ok {
			b.addUnit(i)
		}
	}
}

// deviceNamed returns the device of a claim by its name, and reports whether the machine still has its GPU
// and VF.
func deviceNamed(machine Machine, name string, has *VF) (item, bool) {
	for i := range machine.VFs {
		if vf := vfAlone(&machine.VFs[i], rankVF); vf.Name == name {
			return vf, true
		}
	}
	for i := range machine.GPUs {
		if has == nil {
			continue
		}
		for _, p := range pairItems(&machine.GPUs[i], has) {
			if p.Name == name {
				return p, true
			}
		}
	}
	return item{}, false
}

// SingleVFs returns all VFs of a machine as devices of their own, by name, whether or not they are published
// as such: a claim can be allocated a VF that becomes part of a pair before the claim is prepared.
func SingleVFs(machine Machine) map[string]Device {
	single := make(map[string]Device, len(machine.VFs))
	for i := range machine.VFs {
		d := vfAlone(&machine.VFs[i], rankVF).Device
		single[d.Name] = d
	}
	return single
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
