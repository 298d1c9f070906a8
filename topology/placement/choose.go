// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tandem-k8s/tandem/topology"
)

// Choose chooses Count devices of every half together. All held devices are kept, even if Count is smaller.
// Choose returns an error only if a half has fewer held and free devices than its Count. A device that is not
// in the tree has the distance UNK to all others.
//
// The order of the lists matches the pairs: the i-th VF serves the i-th GPU. If there are more VFs than GPUs,
// the other VFs follow round by round, in the order of the GPUs that they serve; if there are fewer, the
// position of a VF is that of its first GPU. Pairs have the same order.
func Choose(t *topology.Tree, r Request) (Choice, error) {
	return chooseInSteps(t, r, maxSteps)
}

// chooseInSteps is Choose with a limit of steps for each attempt.
func chooseInSteps(t *topology.Tree, r Request, steps int) (Choice, error) {
	a, err := newAttempt(t, r, steps)
	if err != nil {
		return Choice{}, err
	}
	optimal, ok := a.markChoice()
	if !ok {
		return oneByOne(t, r.withSides(&a.gpus, &a.vfs), steps)
	}
	return a.newChoice(optimal), nil
}

// attempt is a request during the search.
type attempt struct {
	gpus, vfs side
	links     []topology.Link
	places    *places
	solver    solver
}

// newAttempt builds the tree of places of a request.
func newAttempt(t *topology.Tree, r Request, steps int) (*attempt, error) {
	gpus, err := normalizeHalves(r.GPUs, r.Spare.GPUs, r.Taken.GPUs, "GPUs")
	if err != nil {
		return nil, err
	}
	vfs, err := normalizeHalves(r.VFs, r.Spare.VFs, r.Taken.VFs, "VFs")
	if err != nil {
		return nil, err
	}
	if t == nil {
		t = new(topology.Tree)
	}
	p := newPlaces(t, &gpus, &vfs)
	s := newSolver(p.root, newShares(gpus.count, vfs.count), steps)
	return &attempt{gpus: gpus, vfs: vfs, links: r.Links, places: p, solver: s}, nil
}

// markChoice finds the choice and marks it in the places. It reports whether the choice is proven optimal,
// and whether the room and the step limit sufficed.
func (a *attempt) markChoice() (optimal, ok bool) {
	if a.solver.GPUs+a.solver.VFs == 0 {
		return true, true
	}
	optimal, ok = a.solver.Solve(a.gpus.asResources(), a.vfs.asResources(), a.places.directLinks(a.links))
	if ok {
		a.places.alignRails()
	}
	return optimal, ok
}

// markedDevices returns the marked devices, in the order of the tree.
func (a *attempt) markedDevices() Devices {
	s, p := &a.solver, a.places
	if p.root == nil {
		return Devices{}
	}
	return Devices{
		GPUs: p.takenGPUs(p.root, make([]Device, 0, s.GPUs)),
		VFs:  p.takenVFs(p.root, make([]Device, 0, s.VFs)),
	}
}

// newChoice returns the marked choice.
func (a *attempt) newChoice(optimal bool) Choice {
	s, p := &a.solver, a.places
	marked := a.markedDevices()
	c := Choice{GPUs: marked.GPUs, VFs: marked.VFs, Left: p.pairsLeft(), Optimal: optimal}
	slices.SortFunc(c.GPUs, compareDevices)
	slices.SortFunc(c.VFs, compareDevices)
	redirected := 0
	if s.Pairs > 0 {
		m := matcher{shares: &s.shares, places: p}
		m.matchBelow(p.root)
		c.Pairs = m.pairs
		sortPairs(p.tree, c.Pairs, c.VFs)
		if m.redirected { // of a switch that redirects only some of its pairs
			redirected = countRedirected(p.tree, c.Pairs)
		}
	}
	c.Reason = c.describeChoice(&s.shares, p, redirected)
	return c
}

// PairsOf returns the pairs of the devices that a container has.
func PairsOf(t *topology.Tree, has Devices) []Pair {
	c, err := Choose(t, Request{
		GPUs: []Half{{Count: len(has.GPUs), Held: has.GPUs}}, VFs: []Half{{Count: len(has.VFs), Held: has.VFs}},
	})
	if err != nil {
		return nil // impossible: no device has to be chosen
	}
	return c.Pairs
}

// oneByOne chooses one resource after another, then pairs the chosen devices. It is the fallback for requests
// that exceed the step limit.
func oneByOne(t *topology.Tree, r Request, steps int) (Choice, error) {
	steps /= 2 * (len(r.GPUs) + len(r.VFs) + 1)
	for i, h := range r.GPUs {
		part := Request{[]Half{nextHalf(r.GPUs, i)}, mergeHalves(r.VFs), r.Links, r.Spare, r.Taken}
		marked, err := markFor(t, part, steps)
		if err != nil {
			return Choice{}, err
		}
		r.GPUs[i], r.Spare.GPUs = h.withChosen(marked.GPUs), slices.Concat(r.Spare.GPUs, h.Free)
	}
	r.Links = nil // links have no influence on the pairs
	for i, h := range r.VFs {
		part := Request{mergeHalves(r.GPUs), []Half{nextHalf(r.VFs, i)}, nil, r.Spare, r.Taken}
		marked, err := markFor(t, part, steps)
		if err != nil {
			return Choice{}, err
		}
		r.VFs[i], r.Spare.VFs = h.withChosen(marked.VFs), slices.Concat(r.Spare.VFs, h.Free)
	}
	r.GPUs, r.VFs = mergeHalves(r.GPUs), mergeHalves(r.VFs)
	c, err := chooseInSteps(t, r, steps)
	c.Optimal = false
	return c, err
}

// markFor chooses for a request with at most one resource of each kind.
func markFor(t *topology.Tree, r Request, steps int) (Devices, error) {
	a, err := newAttempt(t, r, steps)
	if err != nil {
		return Devices{}, err
	}
	a.markChoice()
	return a.markedDevices(), nil
}

// nextHalf returns the i-th half together with the held devices of the others.
func nextHalf(halves []Half, i int) Half {
	h := halves[i]
	held := mergeHalves(halves)[0].Held
	return Half{Count: len(held) + h.Count - len(h.Held), Held: held, Free: h.Free}
}

// withChosen returns the half with its share of the chosen devices as held devices.
func (h Half) withChosen(chosen []Device) Half {
	own := make(map[string]bool, len(h.Held)+len(h.Free))
	for _, d := range slices.Concat(h.Held, h.Free) {
		own[d.ID] = true
	}
	return Half{
		Count: h.Count, Held: slices.DeleteFunc(slices.Clone(chosen), func(d Device) bool { return !own[d.ID] }),
	}
}

// mergeHalves merges several halves into one.
func mergeHalves(halves []Half) []Half {
	var all Half
	for _, h := range halves {
		all.Count += h.Count
		all.Held = append(all.Held, h.Held...)
		all.Free = append(all.Free, h.Free...)
	}
	return []Half{all}
}

// side is the normalized request for one kind. Its devices are unique and in this order: held devices by
// resource, devices that may be chosen by resource, spare devices, devices of other containers; each part
// ascends.
type side struct {
	wanted  []int // by resource, at least the number of its held devices
	count   int   // sum of wanted
	devices []Device
	parts   []part // the part of each device
}

// part is the role of a device: its resource and how it counts.
type part struct {
	resource int
	tally    tally
}

// normalizeHalves normalizes halves, so that later steps do not depend on the order of the lists. Of several
// devices with one ID it keeps a held device, otherwise one that may be chosen, otherwise the device with the
// lowest address. If no device of a resource is requested, its free devices count as spare.
func normalizeHalves(halves []Half, spare, taken []Device, what string) (side, error) {
	if len(halves) > 1 {
		halves = sortHalves(halves)
	}
	n := len(spare) + len(taken)
	for _, h := range halves {
		n += len(h.Held) + len(h.Free)
	}
	s := side{devices: make([]Device, 0, n), parts: make([]part, 0, n), wanted: make([]int, len(halves))}
	seen := make(map[string]bool, n)
	for i, h := range halves {
		s.wanted[i] = s.addPart(h.Held, part{i, tally{Held: 1, Most: 1}}, seen)
	}
	for i, h := range halves {
		held, p := s.wanted[i], part{i, tally{Most: 1}}
		s.wanted[i] = max(h.Count, held)
		s.count += s.wanted[i]
		if s.wanted[i] == 0 {
			p = part{0, tally{Spare: 1}}
		}
		if free := s.addPart(h.Free, p, seen); s.wanted[i] > held+free {
			return side{}, fmt.Errorf("choose %d %s: %d held and %d free", s.wanted[i], what, held, free)
		}
	}
	s.addPart(spare, part{0, tally{Spare: 1}}, seen)
	s.addPart(taken, part{0, tally{Taken: 1}}, seen)
	return s, nil
}

// sortHalves sorts halves by their lowest device. Halves without requested devices come last.
func sortHalves(halves []Half) []Half {
	type keyedHalf struct {
		Half
		lowest Device
	}
	all := make([]keyedHalf, len(halves))
	for i, h := range halves {
		all[i].Half = h
		if devices := slices.Concat(h.Held, h.Free); len(devices) > 0 {
			all[i].lowest = slices.MinFunc(devices, compareDevices)
		}
	}
	slices.SortFunc(all, func(a, b keyedHalf) int {
		return cmp.Or(compareDevices(a.lowest, b.lowest), cmp.Compare(a.Count, b.Count),
			cmp.Compare(len(a.Held), len(b.Held)))
	})
	sorted := make([]Half, len(all))
	for i, k := range all {
		sorted[i] = k.Half
	}
	return sorted
}

// asResources returns the requested resources if devices of several are requested, otherwise nil.
func (s *side) asResources() []resource {
	several := 0
	for _, wanted := range s.wanted {
		several += min(wanted, 1)
	}
	if several < 2 {
		return nil
	}
	resources := make([]resource, len(s.wanted))
	for i, wanted := range s.wanted {
		resources[i].Wanted = wanted
	}
	for _, p := range s.parts {
		resources[p.resource].Most += p.tally.Most
	}
	return resources
}

// splitHalves returns the normalized halves, spare devices and taken devices.
func (s *side) splitHalves() (halves []Half, spare, taken []Device) {
	for _, wanted := range s.wanted {
		halves = append(halves, Half{Count: wanted})
	}
	for i, p := range s.parts {
		list := &taken
		switch {
		case p.tally.Held > 0:
			list = &halves[p.resource].Held
		case p.tally.Most > 0:
			list = &halves[p.resource].Free
		case p.tally.Spare > 0:
			list = &spare
		}
		*list = append(*list, s.devices[i])
	}
	return halves, spare, taken
}

// withSides returns the normalized request.
func (r Request) withSides(gpus, vfs *side) Request {
	r.GPUs, r.Spare.GPUs, r.Taken.GPUs = gpus.splitHalves()
	r.VFs, r.Spare.VFs, r.Taken.VFs = vfs.splitHalves()
	return r
}

// addPart appends a part in ascending order without devices seen before, and returns the number of appended
// devices.
func (s *side) addPart(list []Device, p part, seen map[string]bool) (added int) {
	for _, d := range slices.SortedFunc(slices.Values(list), compareDevices) {
		if seen[d.ID] {
			continue
		}
		seen[d.ID] = true
		s.devices, s.parts = append(s.devices, d), append(s.parts, p)
		added++
	}
	return added
}
