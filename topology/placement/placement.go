package placement

import (
	"slices"

	"github.com/tandem-k8s/tandem/topology"
)

// Device is something to place: a GPU, a partition of one, or a VF.
type Device struct {
	ID      string           // the kubelet's device ID
	Address topology.Address // its PCI function; of a partition, the function of its card
}

// Half is what is asked of one resource: GPUs, partitions of one kind, or the VFs of one pool.
type Half struct {
	Count int      // devices wanted in all, Held included
	Held  []Device // already decided: given to the container before, or must-include
	Free  []Device // may be chosen
}

// Spare is what is free on the node and may not be chosen: on other NUMA nodes, of other resources. It is looked at only to
// judge what a choice strands.
type Spare struct {
	GPUs, VFs []Device
}

// Request is the whole question. The order of its lists means nothing, and so do devices named twice.
type Request struct {
	GPUs, VFs []Half                   // one for each resource asked of; none where nothing of the kind is
	Links     []topology.Link          // direct links between GPUs
	Load      map[topology.Address]int // by PF: how many of its VFs other containers have
	Spare     Spare                    // free beside the Free of all halves
}

// Pair is a GPU with a VF that serves it.
type Pair struct {
	GPU, VF  Device
	Distance topology.Distance
}

// Choice is the answer.
type Choice struct {
	GPUs    []Device // ascending by address, then by ID
	VFs     []Device // the i-th pairs with the i-th GPU; see Choose
	Pairs   []Pair   // as many as the larger half asks for; none where a half is empty
	Left    int      // same-switch pairs that can still be made of what stays free, spare devices included
	Optimal bool     // proven: no better choice exists; false only beyond the bounds that the package names
	Reason  string   // one sentence with numbers, for logs and people
}

// Choose chooses Count devices of every half, all together. Everything held is kept, also where Count is smaller. It is an error when
// held and free devices of a half are fewer than its Count, and nothing else is: a device that the tree does not hold is UNK to all others.
//
// The lists are ordered so that a container that walks both side by side meets the pairs: the i-th VF serves the i-th GPU.
// With more VFs than GPUs the others follow round by round, in the order of the GPUs they serve; with fewer, a VF stands where the first
// of its GPUs puts it. Pairs are in the same order.
func Choose(t *topology.Tree, r Request) (Choice, error) { return choose(t, r, maxSteps) }

// choose is Choose with at most so many steps for each of its attempts.
func choose(t *topology.Tree, r Request, steps int) (Choice, error) {
	gpus, err := ready(r.GPUs, r.Spare.GPUs, "GPUs")
	if err != nil {
		return Choice{}, err
	}
	vfs, err := ready(r.VFs, r.Spare.VFs, "VFs")
	if err != nil {
		return Choice{}, err
	}
	if t == nil {
		t = new(topology.Tree)
	}
	p := newPlaces(t, len(gpus.devices)+len(vfs.devices))
	p.addAll(&gpus, &vfs, r.Load)
	s := solver{
		shares: newShares(gpus.count, vfs.count), root: p.root, most: steps,
		entries: make([]entry, 0, 256), costs: make([]cost, 0, 64), scratch: make([]priced, 0, 32),
	}
	c := Choice{Optimal: true}
	if s.gpus+s.vfs > 0 {
		if !s.mix(&gpus, &vfs) {
			return oneByOne(t, r.with(&gpus, &vfs), steps)
		}
		var ok bool
		if c, ok = s.decide(p, r.Links); !ok {
			return oneByOne(t, r.with(&gpus, &vfs), steps)
		}
	}
	c.Left = p.left()
	c.Reason = c.reason(&s.shares, p)
	return c, nil
}

// decide finds the choice and lays it out. It reports whether there was room and time for that.
func (s *solver) decide(p *places, links []topology.Link) (Choice, bool) {
	cards, irregular := p.measure(links)
	optimal, ok := s.run()
	if !ok {
		return Choice{}, false
	}
	if irregular != nil {
		optimal = s.refine(cards, irregular) && optimal
	}
	s.countTaken(s.root)
	p.alignRails()
	c := Choice{
		Optimal: optimal,
		GPUs:    s.root.takenGPUs(make([]Device, 0, s.gpus)),
		VFs:     s.root.takenVFs(make([]Device, 0, s.vfs)),
	}
	slices.SortFunc(c.GPUs, compareDevices)
	slices.SortFunc(c.VFs, compareDevices)
	if s.pairs > 0 {
		m := newMatcher(&s.shares)
		m.match(s.root)
		c.Pairs = m.pairs
		inOrder(p.tree, c.Pairs, c.VFs)
	}
	return c, true
}
