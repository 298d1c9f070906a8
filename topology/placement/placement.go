// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"slices"

	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement/solver"
)

// Device is a device to place: a GPU, a partition of a GPU, or a VF.
type Device struct {
	ID      string           // the kubelet's device ID
	Address topology.Address // its PCI function; for a partition, the function of its card
}

// Half is the request for one resource: GPUs, partitions of one type, or the VFs of one pool.
type Half struct {
	Count int      // total number of requested devices, including Held
	Held  []Device // already assigned to the container, or must-include
	Free  []Device // may be chosen
}

// Devices are GPUs and VFs.
type Devices struct {
	GPUs, VFs []Device
}

// Request is the complete input. The order of its lists has no meaning. A device in several lists is held if
// it is in Held, otherwise may be chosen if it is in Free, otherwise is spare if it is in Spare.
type Request struct {
	GPUs, VFs []Half          // one for each requested resource; none if no resource of the kind is requested
	Links     []topology.Link // direct links between GPUs
	Spare     Devices         // free devices that may not be chosen: on other NUMA nodes, of other resources
	Taken     Devices         // held by other containers
}

// Pair is a GPU and the VF that serves it.
type Pair struct {
	GPU, VF  Device
	Distance topology.Distance
}

// Choice is the answer.
type Choice struct {
	GPUs    []Device // ascending by address, then by ID
	VFs     []Device // the i-th VF pairs with the i-th GPU; see Choose
	Pairs   []Pair   // as many as the size of the larger half; none if a half is empty
	Left    int      // same-switch pairs that the remaining free devices can form, including spare devices
	Optimal bool     // proven: no better choice exists; false only beyond the package's bounds
	Reason  string   // one sentence with numbers, for logs and people
}

// Choose chooses Count devices of every half together. All held devices are kept, even if Count is smaller.
// Choose returns an error only if a half has fewer held and free devices than its Count. A device that is not
// in the tree has the distance UNK to all others.
//
// The order of the lists matches the pairs: the i-th VF serves the i-th GPU. If there are more VFs than GPUs,
// the other VFs follow round by round, in the order of the GPUs that they serve; if there are fewer, the
// position of a VF is that of its first GPU. Pairs have the same order.
func Choose(t *topology.Tree, r Request) (Choice, error) {
	return choose(t, r, solver.MaxSteps)
}

// choose is Choose with a limit of steps for each attempt.
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

// attempt is a request during the search.
type attempt struct {
	gpus, vfs side
	links     []topology.Link
	places    *places
	solver    solver.Solver
}

// prepare builds the tree of places of a request.
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

// mark finds the choice and marks it in the places. It reports whether the choice is proven optimal, and
// whether the room and the step limit sufficed.
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

// marked returns the marked devices, in the order of the tree.
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

// choice returns the marked choice.
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
