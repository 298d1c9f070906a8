// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement/solver"
)

// reason describes the choice in one sentence: "4 pairs: 4 PIX; VFs on 4 PFs; 12 same-switch pairs left".
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
	text += degradedText(p) + "; " + count(c.Left, "same-switch pair") + " left"
	if !c.Optimal {
		text += "; too large to prove it the best"
	}
	return text
}

// mostNamed is the maximum number of functions that a reason names.
const mostNamed = 4

// degradedText names the degraded functions that were chosen nevertheless, and those that were not.
func degradedText(p *places) string {
	taken, passed := p.degraded()
	return Named("chosen although degraded", taken) + Named("degraded and not chosen", passed)
}

// Named returns a part of a reason that names functions, at most four of them; "" for none.
func Named(what string, functions []topology.Address) string {
	if len(functions) == 0 {
		return ""
	}
	var names strings.Builder
	for _, a := range functions[:min(len(functions), mostNamed)] {
		names.WriteString(" " + a.String())
	}
	text := "; " + what + ":" + names.String()
	if more := len(functions) - mostNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Together returns the number of pairs on one switch (PIX or PXB).
func Together(pairs []Pair) int {
	n := 0
	for _, p := range pairs {
		if p.Distance.Level.Direct() {
			n++
		}
	}
	return n
}

// Levels returns the number of pairs of each level, nearest first: "3 PIX, 1 NODE".
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

// count formats a number with a noun.
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
