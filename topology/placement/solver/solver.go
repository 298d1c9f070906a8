package solver

// MaxSteps bounds the work on one choice: so many pairs of table entries are combined, at 5 to 20 ns each,
// before it is given up to find the best choice for sure. What is done instead takes half as many again at
// most. That keeps a choice below 20 ms on a server's core for up to 64 GPUs and 1016 VFs, see
// BenchmarkWorst; with thousands of devices it takes longer to put them in their places. Requests of eight
// GPUs take hundreds of steps. Those that need more than the bound want many devices that are mostly far from
// any partner, in halves of which none is a multiple of the other.
const MaxSteps = 600_000

// ManyPairs is how many pairs of entries make it worth while to look at rows.
const ManyPairs = 1024

// Effort is how much work goes into a choice, and where.
type Effort struct {
	Steps int // at most, for each attempt
	Rows  int // tables that make more pairs of entries than this are combined row by row
}

// New is for a choice from a tree of places; the root is nil where there is nothing to choose from.
func New(root *Place, wanted Shares, e Effort) Solver {
	s := Solver{
		Shares: wanted, root: root, most: e.Steps, manyPairs: e.Rows,
		entries: make([]entry, 0, 256), costs: make([]cost, 0, 64), scratch: make([]priced, 0, 32),
	}
	if root != nil {
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
