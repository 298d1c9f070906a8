// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"math"
)

// deviations is the number of standard deviations that are still noise.
const deviations = 2

// compare writes the mutations that died before and do not now, and returns an error for each package whose
// share got worse by more than noise: of the mutations in both samples, which must not lose many more than
// they win, or of the whole samples. Packages that only one of the reports has are not compared.
func compare(out io.Writer, before, now *report) (failed error) {
	earlier := map[identity]result{}
	for _, one := range before.Mutations {
		earlier[one.identity] = one
	}
	lost, won := map[string]int{}, map[string]int{}
	for _, one := range now.Mutations {
		was, ok := earlier[one.identity]
		switch {
		case !ok || (was.Outcome == dead) == (one.Outcome == dead):
		case one.Outcome == dead:
			won[one.Package]++
		default:
			lost[one.Package]++
			fmt.Fprintf(out, "no longer dead, but %s: %s:%d %v; was by %s\n",
				one.Outcome, one.File, one.Line, one.identity, was.By)
		}
	}
	rows := map[string]row{}
	for _, p := range before.Packages {
		rows[p.Package] = p
	}
	for _, p := range now.Packages {
		was, ok := rows[p.Package]
		if ok && (isLoss(lost[p.Package], won[p.Package]) || isWorse(was, p)) {
			failed = errors.Join(failed, fmt.Errorf("%s: %.0f%% die, %.0f%% before; of the same mutations %d no "+
				"longer die and %d now do", p.Package, 100*p.Share, 100*was.Share, lost[p.Package], won[p.Package]))
		}
	}
	return failed
}

// isLoss reports whether lost mutations exceed won ones by more than noise: each of them had even odds.
func isLoss(lost, won int) bool {
	return float64(lost-won) > deviations*math.Sqrt(float64(lost+won))
}

// isWorse reports whether a share is smaller by more than noise: both samples are drawn from the same sites.
func isWorse(before, now row) bool {
	if before.Sampled == 0 || now.Sampled == 0 {
		return false
	}
	share := float64(before.Dead+now.Dead) / float64(before.Sampled+now.Sampled)
	noise := math.Sqrt(share * (1 - share) * (1/float64(before.Sampled) + 1/float64(now.Sampled)))
	return before.Share-now.Share > deviations*noise
}
