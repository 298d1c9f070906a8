package placement

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
)

// reason says in one sentence what was chosen, "4 pairs: 4 PIX; VFs on 4 PFs; 12 same-switch pairs left".
func (c *Choice) reason(s *shares, p *places) string {
	var b strings.Builder
	pfs := count(p.pfsOf(c.VFs), "PF")
	switch {
	case s.gpus+s.vfs == 0:
		return "nothing asked for"
	case s.pairs > 0:
		b.WriteString(count(s.pairs, "pair") + ": " + c.levels() + "; VFs on " + pfs)
	case s.gpus > 0:
		b.WriteString(count(s.gpus, "GPU"))
		if n := p.switchesTaken(); n > 0 {
			b.WriteString(" on " + count(n, "switch"))
		}
	default:
		b.WriteString(count(s.vfs, "VF") + " on " + pfs)
	}
	fmt.Fprintf(&b, "; %s left", count(c.Left, "same-switch pair"))
	if !c.Optimal {
		b.WriteString("; too large to prove it the best")
	}
	return b.String()
}

func (p *places) pfsOf(vfs []Device) int {
	pfs := make(map[topology.Address]bool, len(vfs))
	for _, d := range vfs {
		pfs[p.function(d.Address)] = true
	}
	return len(pfs)
}

// switchesTaken counts the switches that GPUs are taken from.
func (p *places) switchesTaken() int {
	n := 0
	for _, g := range p.all {
		if g.depth > 0 && g.chosen.gpus > 0 {
			n++
		}
	}
	return n
}

// levels lists how many pairs there are of each level, "3 PIX, 1 NODE".
func (c *Choice) levels() string {
	var n [topology.Levels]int
	for _, p := range c.Pairs {
		n[p.Distance.Level]++
	}
	var words []string
	for level, k := range n {
		if k > 0 {
			words = append(words, strconv.Itoa(k)+" "+topology.Level(level).String())
		}
	}
	return strings.Join(words, ", ")
}

// count puts a number before a word.
func count(n int, word string) string {
	switch {
	case n == 1:
		return "1 " + word
	case strings.HasSuffix(word, "ch"):
		word += "e"
	}
	return strconv.Itoa(n) + " " + word + "s"
}
