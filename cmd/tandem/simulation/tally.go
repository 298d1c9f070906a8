package simulation

// tally counts what becomes of the containers of one trial, and what the node is like between them.
type tally struct {
	node     *Node
	best     *bestScores
	requests []requestTally // by index of the mix

	near     float64 // sum of GPU to GPU locality
	several  int     // containers with more than one GPU
	crossing int     // pairs whose halves are on different NUMA nodes

	time, busy, stranded float64 // integrals: 1, share of GPUs allocated, stranded pairs
}

// requestTally counts the containers of one request.
type requestTally struct {
	arrived, fit, refused, admitted int
	pix, own, full                  int // same-switch pairs; those with a PF of their own; containers with all pairs on one switch
}

// arrival counts a container after its admission.
func (t *tally) arrival(s *State, what int, c Container, outcome Outcome) {
	r := &t.requests[what]
	r.arrived++
	if outcome == DoesNotFit {
		return
	}
	r.fit++
	if outcome == Refused {
		r.refused++
		return
	}
	r.admitted++
	if c.Request.both() {
		pix, own, sameNode := t.node.pairs(c)
		r.pix += pix
		r.own += own
		if pix == c.Request.pairs() {
			r.full++
		}
		t.crossing += c.Request.pairs() - sameNode
	}
	if c.Request.GPUs > 1 {
		t.several++
		t.near += t.locality(s, c)
	}
}

// locality is how near the GPUs of a container are to each other, as a share of the best that could be had of those free before.
func (t *tally) locality(s *State, c Container) float64 {
	free := clone(c.Devices[GPU])
	for i, taken := range s.taken[GPU] {
		if !taken {
			free = append(free, i)
		}
	}
	best := t.best.of(free, c.Request.GPUs)
	if best == 0 {
		return 1
	}
	return float64(t.node.score(c.Devices[GPU])) / float64(best)
}

// pass counts what the node is like for a time.
func (t *tally) pass(s *State, time float64) {
	t.time += time
	t.busy += time * (1 - float64(s.free[GPU])/float64(len(s.taken[GPU])))
	t.stranded += time * float64(s.stranded())
}

// pairs is how many GPUs of a container can have a VF of their own on their switch, how many of them on a PF of their own, and how
// many a VF of their own on their NUMA node.
func (n *Node) pairs(c Container) (pix, own, sameNode int) {
	type place struct{ gpus, vfs, pfs int }
	switches, numa := map[int]*place{}, map[int]*place{}
	seen := map[int]bool{}
	at := func(places map[int]*place, i int) *place {
		if places[i] == nil {
			places[i] = &place{}
		}
		return places[i]
	}
	for _, i := range c.Devices[GPU] {
		at(switches, n.devices[GPU][i].onSwitch).gpus++
		at(numa, n.devices[GPU][i].numa).gpus++
	}
	for _, i := range c.Devices[VF] {
		d := n.devices[VF][i]
		at(switches, d.onSwitch).vfs++
		at(numa, d.numa).vfs++
		if !seen[d.pf] {
			seen[d.pf] = true
			at(switches, d.onSwitch).pfs++
		}
	}
	for i, p := range switches {
		if i >= 0 {
			pix += min(p.gpus, p.vfs)
			own += min(p.gpus, p.pfs)
		}
	}
	for _, p := range numa {
		sameNode += min(p.gpus, p.vfs)
	}
	return pix, own, sameNode
}
