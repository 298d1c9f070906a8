package world

import (
	"math/rand/v2"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
)

// Question is what the kubelet asks when it wants to know which devices are preferred.
type Question struct {
	Kind      Kind
	Available []int // ascending; those of Must among them
	Must      []int
	Size      int
	Request   Request    // what the container asks for in all, which the kubelet does not tell
	Given     [2][]int   // what the container has been given already
	Mask      hints.Mask // the NUMA nodes of the container, which the kubelet does not tell either
}

// Prefer answers a question: devices of those available. Where they are too few or others the kubelet picks
// at random.
type Prefer func(s *State, q Question, rng *rand.Rand) []int

// Outcome is what became of a container.
type Outcome int

// The outcomes. A container that does not fit would wait in the scheduler; one that is refused has failed.
const (
	DoesNotFit Outcome = iota
	Refused
	Admitted
)

// Admit asks for devices for a container as the kubelet's Topology Manager and device manager do, one half
// after the other, and takes them.
func (s *State) Admit(r Request, first Kind, prefer Prefer, rng *rand.Rand) (Container, Outcome) {
	c := Container{Request: r}
	if !s.Fits(r) {
		return c, DoesNotFit
	}
	mask, admitted := s.Affinity(r)
	if !admitted {
		return c, Refused
	}
	s.last++
	for _, kind := range [...]Kind{first, first.Other()} {
		if n := r.Of(kind); n > 0 {
			q := Question{Kind: kind, Size: n, Request: r, Given: c.Devices, Mask: mask}
			c.Devices[kind] = s.devices(q, prefer, rng)
			s.take(kind, c.Devices[kind])
		}
	}
	return c, Admitted
}

// devices chooses as devicesToAllocate of the kubelet's device manager does: those on the container's NUMA
// nodes first, and the plugin is asked only where they leave a choice.
func (s *State) devices(q Question, prefer Prefer, rng *rand.Rand) []int {
	aligned, unaligned, elsewhere := s.Split(q.Kind, q.Mask)
	if q.Size < len(aligned) {
		q.Available = aligned
		return fill(nil, q.Size, rng, s.ask(q, prefer, rng), aligned)
	}
	if q.Size == len(aligned) {
		return aligned
	}
	q.Must = aligned
	q.Available = slices.Concat(aligned, unaligned, elsewhere)
	slices.Sort(q.Available)
	return fill(aligned, q.Size, rng, s.ask(q, prefer, rng), unaligned, elsewhere)
}

// ask puts a question and leaves out of the answer what was not available, and what is the container's
// anyway.
func (s *State) ask(q Question, prefer Prefer, rng *rand.Rand) []int {
	answer := slices.Sorted(slices.Values(prefer(s, q, rng)))
	return slices.DeleteFunc(slices.Compact(answer), func(i int) bool {
		_, available := slices.BinarySearch(q.Available, i)
		return !available || slices.Contains(q.Must, i)
	})
}

// fill adds devices from one list after the other, random ones of a list that has more than are wanted.
func fill(chosen []int, size int, rng *rand.Rand, lists ...[]int) []int {
	chosen = slices.Clone(chosen)
	for _, list := range lists {
		if len(chosen) == size {
			break
		}
		rest := slices.DeleteFunc(slices.Clone(list), func(i int) bool { return slices.Contains(chosen, i) })
		if missing := size - len(chosen); len(rest) > missing {
			rest = Pick(rest, missing, rng)
		}
		chosen = append(chosen, rest...)
	}
	slices.Sort(chosen)
	return chosen
}

// Split is filterByAffinity of the kubelet's device manager: free devices on the given nodes, on others, and
// on none that it knows. Without nodes all are in the last list.
func (s *State) Split(kind Kind, mask hints.Mask) (aligned, unaligned, elsewhere []int) {
	for i, taken := range s.taken[kind] {
		if taken {
			continue
		}
		switch n := s.NUMA(kind, i); {
		case mask == 0 || n < 0:
			elsewhere = append(elsewhere, i)
		case mask>>n&1 == 1:
			aligned = append(aligned, i)
		default:
			unaligned = append(unaligned, i)
		}
	}
	return aligned, unaligned, elsewhere
}

// Offered lists what the kubelet will let a container choose from.
func (s *State) Offered(kind Kind, q Question) []int {
	aligned, unaligned, elsewhere := s.Split(kind, q.Mask)
	if len(aligned) >= q.Request.Of(kind) {
		return aligned
	}
	return slices.Concat(aligned, unaligned, elsewhere)
}
