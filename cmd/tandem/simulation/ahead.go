package simulation

import (
	"math"
	"math/rand/v2"

	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
)

// ahead chooses what makes the most pairs in the long run, by the values of an outlook: this container's pairs and those of the
// containers to come. Where the outlook says nothing it chooses step by step.
type ahead struct {
	node    *Node
	outlook *outlook
	slots   [2][]int // by device: its place in a holding of its NUMA node
	worth   map[holding]float64
	step    Prefer
}

func newAhead(n *Node, o *outlook) Prefer {
	a := &ahead{node: n, outlook: o, worth: map[holding]float64{}, step: joint(n)}
	for _, kind := range kinds {
		a.slots[kind] = make([]int, n.Count(kind))
	}
	for numa := range n.numa {
		a.number(newDomain(n, numa))
	}
	return a.prefer
}

// number gives the devices of a NUMA node their places.
func (a *ahead) number(d domain) {
	for _, c := range d.switches {
		next := [2]int{c.from, c.from + c.gpus}
		for _, kind := range kinds {
			for i, dev := range a.node.devices[kind] {
				if dev.onSwitch == c.onSwitch {
					a.slots[kind][i] = next[kind]
					next[kind]++
				}
			}
		}
	}
}

func (a *ahead) prefer(s *State, q Question, rng *rand.Rand) []int {
	if q.Mask.Count() != 1 {
		return a.step(s, q, rng)
	}
	before := a.holding(s, q.Mask)
	var chosen []int
	best := math.Inf(-1)
	other := q.Kind.other()
	eachSet(q.Available, q.Size, func(mine []int) {
		try := func(theirs []int) {
			var c Container
			c.Devices[q.Kind], c.Devices[other] = mine, theirs
			pairs, _, _ := a.node.pairs(c)
			if v := float64(pairs) + a.value(before, c); v > best+closeEnough {
				best, chosen = v, clone(mine)
			}
		}
		if given := q.Given[other]; len(given) > 0 || q.Request.of(other) == 0 {
			try(given)
		} else {
			eachSet(s.offered(other, q), q.Request.of(other), try)
		}
	})
	return chosen
}

// holding is how the devices of a NUMA node are held, those of the container that is asking left out.
func (a *ahead) holding(s *State, mask hints.Mask) holding {
	var h holding
	numbers := map[int]int{}
	for _, kind := range kinds {
		for i, d := range a.node.devices[kind] {
			if d.numa < 0 || mask>>d.numa&1 == 0 || !s.taken[kind][i] || s.by[kind][i] == s.last {
				continue
			}
			h[a.slots[kind][i]] = byte(1 + number(numbers, s.by[kind][i]))
		}
	}
	return h
}

// value is what is left when a container has been given its devices.
func (a *ahead) value(h holding, c Container) float64 {
	for _, kind := range kinds {
		for _, i := range c.Devices[kind] {
			h[a.slots[kind][i]] = math.MaxUint8
		}
	}
	h = renumbered(h)
	v, ok := a.worth[h]
	if !ok {
		v = a.outlook.values[a.outlook.alike(h)]
		a.worth[h] = v
	}
	return v
}
