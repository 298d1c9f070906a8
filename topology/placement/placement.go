package placement

import (
	"slices"

	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement/solver"
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

// Devices are some of each kind.
type Devices struct {
	GPUs, VFs []Device
}

// Request is the whole question. The order of its lists means nothing. A device that is in several is held if
// it is in Held, else to be chosen if it is in Free, else spare if it is in Spare.
type Request struct {
	GPUs, VFs []Half          // one for each resource asked of; none where nothing of the kind is
	Links     []topology.Link // direct links between GPUs
	Spare     Devices         // free and not to be chosen: on other NUMA nodes, of other resources
	Taken     Devices         // held by other containers
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

// Choose chooses Count devices of every half, all together. Everything held is kept, also where Count is
// smaller. It is an error when held and free devices of a half are fewer than its Count, and nothing else is:
// a device that the tree does not hold is UNK to all others.
//
// The lists are ordered so that a container that walks both side by side meets the pairs: the i-th VF serves
// the i-th GPU. With more VFs than GPUs the others follow round by round, in the order of the GPUs they
// serve; with fewer, a VF stands where the first of its GPUs puts it. Pairs are in the same order.
func Choose(t *topology.Tree, r Request) (Choice, error) {
	return choose(t, r, solver.MaxSteps)
}

// choose is Choose with so many steps for each attempt.
func choose(t *topology.Tree, r Request, steps int) (Choice, error) {
	a, err := prepare(t, r, steps)
	if err != nil {
		return Choice{}, err
	}
	optimal, ok := a.mark()
	if !ok {
		return oneByOne(t, r.with(&a.gpus, &a.vfs), steps)
	}
	return a.choice(optimal), nil
}

// attempt is a request on the way to its answer.
type attempt struct {
	gpus, vfs side
	links     []topology.Link
	places    *places
	solver    solver.Solver
}

// prepare puts the devices of a request in their places.
func prepare(t *topology.Tree, r Request, steps int) (*attempt, error) {
	gpus, err := ready(r.GPUs, r.Spare.GPUs, r.Taken.GPUs, "GPUs")
	if err != nil {
		return nil, err
	}
	vfs, err := ready(r.VFs, r.Spare.VFs, r.Taken.VFs, "VFs")
	if err != nil {
		return nil, err
	}
	if t == nil {
		t = new(topology.Tree)
	}
	p := newPlaces(t, len(gpus.devices)+len(vfs.devices))
	p.addAll(&gpus, &vfs)
	s := solver.New(p.root, solver.NewShares(gpus.count, vfs.count), steps)
	return &attempt{gpus: gpus, vfs: vfs, links: r.Links, places: p, solver: s}, nil
}

// mark finds what to choose and marks it in the places. It reports whether that is proven the best, and
// whether there was room and time to find anything.
func (a *attempt) mark() (optimal, ok bool) {
	if a.solver.GPUs+a.solver.VFs == 0 {
		return true, true
	}
	optimal, ok = a.solver.Solve(a.gpus.resources(), a.vfs.resources(), a.places.links(a.links))
	if ok {
		a.places.alignRails()
	}
	return optimal, ok
}

// marked lists what is marked, in the order of the tree.
func (a *attempt) marked() Devices {
	s, p := &a.solver, a.places
	if p.root == nil {
		return Devices{}
	}
	return Devices{
		GPUs: p.takenGPUs(p.root, make([]Device, 0, s.GPUs)),
		VFs:  p.takenVFs(p.root, make([]Device, 0, s.VFs)),
	}
}

// choice lays out what is marked.
func (a *attempt) choice(optimal bool) Choice {
	s, p := &a.solver, a.places
	marked := a.marked()
	c := Choice{GPUs: marked.GPUs, VFs: marked.VFs, Left: p.left(), Optimal: optimal}
	slices.SortFunc(c.GPUs, compareDevices)
	slices.SortFunc(c.VFs, compareDevices)
	redirected := 0
	if s.Pairs > 0 {
		m := newMatcher(p, &s.Shares)
		m.match(p.root)
		c.Pairs, redirected = m.pairs, m.redirected
		inOrder(p.tree, c.Pairs, c.VFs)
	}
	c.Reason = c.reason(&s.Shares, p, redirected)
	return c
}
