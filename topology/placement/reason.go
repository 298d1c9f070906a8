package placement

import (
	"fmt"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement/solver"
)

// reason says in one sentence what was chosen, "4 pairs: 4 PIX; VFs on 4 PFs; 12 same-switch pairs left".
func (c *Choice) reason(s *solver.Shares, p *places, redirected int) string {
	var text string
	switch {
	case s.GPUs+s.VFs == 0:
		return "nothing asked for"
	case s.Pairs > 0:
		text = count(s.Pairs, "pair") + ": " + Levels(c.Pairs)
		if redirected > 0 {
			text += fmt.Sprintf(", %d of them by way of the host bridge (ACS)", redirected)
		}
		text += "; VFs on " + count(p.pfsTaken(), "PF")
	case s.GPUs > 0:
		text = count(s.GPUs, "GPU")
		if n := p.switchesTaken(); n > 0 {
			text += " on " + count(n, "switch")
		}
	default:
		text = count(s.VFs, "VF") + " on " + count(p.pfsTaken(), "PF")
	}
	text += "; " + count(c.Left, "same-switch pair") + " left"
	if !c.Optimal {
		text += "; too large to prove it the best"
	}
	return text
}

// left is how many same-switch pairs can still be made when what is marked is taken.
func (p *places) left() int {
	sum := 0
	for _, g := range p.all {
		if g.Kind == solver.Group && g.Depth > 0 {
			sum += min(g.GPUs.Free()-g.Chosen.GPUs+g.GPUs.Held, g.VFs.Free()-g.Chosen.VFs+g.VFs.Held)
		}
	}
	return sum
}

// pfsTaken counts the PFs that VFs are taken from.
func (p *places) pfsTaken() int {
	n := 0
	for _, f := range p.pfs {
		if f.Taken > 0 {
			n++
		}
	}
	return n
}

// switchesTaken counts the switches that GPUs are taken from.
func (p *places) switchesTaken() int {
	n := 0
	for _, g := range p.all {
		if g.Kind == solver.Group && g.Depth > 0 && g.Chosen.GPUs > 0 {
			n++
		}
	}
	return n
}

// Together counts the pairs that are on one switch each.
func Together(pairs []Pair) int {
	n := 0
	for _, p := range pairs {
		if p.Distance.Level.SameSwitch() {
			n++
		}
	}
	return n
}

// Levels lists how many pairs there are of each level, "3 PIX, 1 NODE".
func Levels(pairs []Pair) string {
	var n [topology.Levels]int
	for _, p := range pairs {
		n[p.Distance.Level]++
	}
	var parts []string
	for level, k := range n {
		if k > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", k, topology.Level(level)))
		}
	}
	return strings.Join(parts, ", ")
}

// count puts a number before a word.
func count(n int, word string) string {
	switch {
	case n == 1:
	case word == "switch":
		word = "switches"
	default:
		word += "s"
	}
	return fmt.Sprintf("%d %s", n, word)
}
