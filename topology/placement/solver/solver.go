package solver

// MaxSteps bounds the work on one choice: so many pairs of table entries are combined, at 10 to 40 ns each,
// before it is given up to find the best choice for sure. What is done instead takes half as many again at
// most. That keeps a choice below 20 ms on a server's core for up to 64 GPUs and 1016 VFs, see
// BenchmarkWorst; with thousands of devices it takes longer to put them in their places. Requests of eight
// GPUs take hundreds of steps. Those that need more than the bound want many devices that are mostly far from
// any partner, in halves of which none is a multiple of the other.
const MaxSteps = 800_000

// Solver finds the cheapest choice by dynamic programming over the tree of places: for every place it keeps
// the best way to take each number of GPUs, VFs and extras from below it. The costs of disjoint places add
// up, and how many pairs are made below a place depends on these numbers alone, since on a tree it is best to
// make every pair as low as possible.
type Solver struct {
	Shares
	mixing mixing
	root   *Place
	cards  []*Place // in the order of the tree
	most   int      // steps for one attempt
	limit  int      // most pairs beyond PIX that a choice may have
	loose  bool     // extras follow the VFs rather than being tried in all numbers
	budget int      // steps left; negative when the search was given up

	entries []entry // all tables: they stay, to be followed back
	making  []entry // the table being made
	room    []int32 // for its slots
}

// New is for a choice from a tree of places that takes so many steps at most in each attempt; the root is nil
// where there is nothing to choose from.
func New(root *Place, wanted Shares, steps int) Solver {
	s := Solver{Shares: wanted, root: root, most: steps, making: make([]entry, 0, 32)}
	if root != nil {
		s.entries = make([]entry, 0, 256)
		s.cards = root.numberCards(make([]*Place, 0, root.GPUs.Most))
	}
	return s
}

// Solve finds what to choose and marks it in the places, down to how many devices come from each pool. It
// reports whether that is proven the best, and whether there was room and time to find anything. Resources
// are those of a kind of which several are wanted, none for another kind. Links are those between cards with
// something to choose; their order changes.
func (s *Solver) Solve(gpus, vfs []Resource, links []Link) (optimal, ok bool) {
	if !s.mix(gpus, vfs) {
		return false, false
	}
	irregular := s.measure(links)
	if optimal, ok = s.run(); !ok {
		return false, false
	}
	if irregular != nil {
		optimal = s.refine(irregular) && optimal
	}
	s.countTaken(s.root)
	return optimal, true
}
