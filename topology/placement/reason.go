package placement

import (
	"strconv"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement/solver"
)

// reason says in one sentence what was chosen, "4 pairs: 4 PIX; VFs on 4 PFs; 12 same-switch pairs left".
func (c *Choice) reason(s *solver.Shares, p *places, redirected int) string {
	b := make([]byte, 0, 128)
	switch {
	case s.GPUs+s.VFs == 0:
		return "nothing asked for"
	case s.Pairs > 0:
		b = appendCount(b, s.Pairs, "pair")
		b = c.appendLevels(append(b, ": "...))
		if redirected > 0 {
			b = append(strconv.AppendInt(append(b, ", "...), int64(redirected), 10),
				" of them by way of the host bridge (ACS)"...)
		}
		b = appendCount(append(b, "; VFs on "...), p.pfsTaken(), "PF")
	case s.GPUs > 0:
		b = appendCount(b, s.GPUs, "GPU")
		if n := p.switchesTaken(); n > 0 {
			b = appendCount(append(b, " on "...), n, "switch")
		}
	default:
		b = appendCount(b, s.VFs, "VF")
		b = appendCount(append(b, " on "...), p.pfsTaken(), "PF")
	}
	b = append(appendCount(append(b, "; "...), c.Left, "same-switch pair"), " left"...)
	if !c.Optimal {
		b = append(b, "; too large to prove it the best"...)
	}
	return string(b)
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

// appendLevels lists how many pairs there are of each level, "3 PIX, 1 NODE".
func (c *Choice) appendLevels(b []byte) []byte {
	var n [topology.Levels]int
	for _, p := range c.Pairs {
		n[p.Distance.Level]++
	}
	between := ""
	for level, k := range n {
		if k > 0 {
			b = append(strconv.AppendInt(append(b, between...), int64(k), 10), ' ')
			b = append(b, topology.Level(level).String()...)
			between = ", "
		}
	}
	return b
}

// appendCount puts a number before a word.
func appendCount(b []byte, n int, word string) []byte {
	b = append(append(strconv.AppendInt(b, int64(n), 10), ' '), word...)
	switch {
	case n == 1:
		return b
	case strings.HasSuffix(word, "ch"):
		return append(b, "es"...)
	default:
		return append(b, 's')
	}
}
