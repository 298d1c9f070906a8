package simulation

import (
	"slices"

	"github.com/tandem-k8s/tandem/topology"
)

// pairScore is what the vendor's policy gives two GPUs for where they are in the PCI tree: the more, the nearer.
var pairScore = [topology.Levels]int{topology.PIX: 50, topology.PXB: 40, topology.PHB: 30, topology.NODE: 20, topology.SYS: 10}

// scores lists for every two GPUs how near they are in the PCI tree. Direct links are left out: they are the same between all GPUs
// of one NVSwitch, and the vendor's policy does not see them there.
func (n *Node) scores() [][]int {
	gpus := n.devices[GPU]
	scores := make([][]int, len(gpus))
	for i, a := range gpus {
		scores[i] = make([]int, len(gpus))
		for j, b := range gpus {
			if i != j {
				scores[i][j] = pairScore[n.tree.Distance(a.Address, b.Address).Level]
			}
		}
	}
	return scores
}

// score is how near the GPUs of a set are to each other, summed up over all pairs.
func (n *Node) score(gpus []int) int {
	sum := 0
	for i, a := range gpus {
		for _, b := range gpus[:i] {
			sum += n.near[a][b]
		}
	}
	return sum
}

// nearest finds the best score that so many of these GPUs can have, exactly where the sets are few, else by adding GPU after GPU
// to each of them in turn.
func (n *Node) nearest(gpus []int, size int) (score int, sets [][]int) {
	if size == 0 || size > len(gpus) {
		return 0, nil
	}
	if combinations(len(gpus), size) > mostSets {
		return n.grow(gpus, size)
	}
	score = -1
	eachSet(gpus, size, func(set []int) {
		switch s := n.score(set); {
		case s > score:
			score, sets = s, [][]int{clone(set)}
		case s == score && len(sets) < mostTies:
			sets = append(sets, clone(set))
		}
	})
	return score, sets
}

const (
	mostSets = 20_000 // 16 GPUs have 12,870 sets of 8
	mostTies = 1000   // of equally good sets, from which one is drawn
)

func (n *Node) grow(gpus []int, size int) (score int, sets [][]int) {
	score = -1
	for _, first := range gpus {
		set := []int{first}
		for len(set) < size {
			best, gain := -1, -1
			for _, g := range gpus {
				if contains(set, g) {
					continue
				}
				if s := n.score(append(clone(set), g)) - n.score(set); s > gain {
					best, gain = g, s
				}
			}
			set = append(set, best)
		}
		switch s := n.score(set); {
		case s > score:
			score, sets = s, [][]int{set}
		case s == score:
			sets = append(sets, set)
		}
	}
	return score, sets
}

// eachSet visits all sets of so many elements of a list; the set is valid during the visit only.
func eachSet(list []int, size int, visit func(set []int)) {
	set := make([]int, 0, size)
	var step func(from int)
	step = func(from int) {
		if len(set) == size {
			visit(set)
			return
		}
		for i := from; i <= len(list)-(size-len(set)); i++ {
			set = append(set, list[i])
			step(i + 1)
			set = set[:len(set)-1]
		}
	}
	step(0)
}

// combinations is how many sets of k elements n elements have, or something above mostSets.
func combinations(n, k int) int {
	c := 1
	for i := range min(k, n-k) {
		if c = c * (n - i) / (i + 1); c > mostSets {
			return c
		}
	}
	return c
}

// bestScores remembers the best scores of sets of GPUs. It is not for use at the same time.
type bestScores struct {
	node *Node
	memo map[setKey]int
}

func (b *bestScores) of(gpus []int, size int) int {
	slices.Sort(gpus)
	key := setKey{keyOf(gpus), size}
	score, ok := b.memo[key]
	if !ok {
		score, _ = b.node.nearest(gpus, size)
		b.memo[key] = score
	}
	return score
}
