// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
)

// draw returns about n sites, in proportion to the sites of each package, and at least some of each. A site
// is chosen by its identity, so that a change of the code leaves most of the sample as it was.
func draw(sites []*site, n, least int, seed uint64) (chosen []*site) {
	byPackage := map[string][]*site{}
	for _, s := range sites {
		byPackage[s.Package] = append(byPackage[s.Package], s)
	}
	rank := func(s *site) string {
		hash := sha256.Sum256(fmt.Appendf(nil, "%d %v", seed, s.identity))
		return string(hash[:])
	}
	kept := map[*site]bool{}
	for _, own := range byPackage {
		share := min(max(n*len(own)/len(sites), least), len(own))
		slices.SortFunc(own, func(a, b *site) int { return cmp.Compare(rank(a), rank(b)) })
		for _, s := range own[:share] {
			kept[s] = true
		}
	}
	for _, s := range sites {
		if kept[s] {
			chosen = append(chosen, s)
			s.number = len(chosen)
		}
	}
	return chosen
}
