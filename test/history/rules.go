// SPDX-License-Identifier: Apache-2.0

package history

import "slices"

// Rules describe the promises that a source of requests can keep.
type Rules struct {
	Exempt []Promise // promises without validity in this history
	// Names: Tandem knows the names of pods only, but neither requests nor annotations
	Names bool
}

// exempt reports whether a promise is not valid for an operation.
func (r Rules) exempt(p Promise, in input) bool {
	return slices.Contains(r.Exempt, p) || slices.Contains(in.exempt, p) ||
		p == NotEnforced && (r.Names || in.relisting)
}

// judgesPairs reports whether the answer to a question must permit the best pairs of the container.
func (r Rules) judgesPairs(m Machine, in input) bool {
	c := in.container
	if c == nil || c.Init || !m.paired(c) || r.exempt(NotBest, in) {
		return false
	}
	if !r.Names {
		return true
	}
	for name, count := range c.Requests {
		if count != in.event.Offer.Size || slices.Contains(in.unasked, name) {
			return false
		}
	}
	return true
}
