// SPDX-License-Identifier: Apache-2.0

// Package scale determines the share of a test that "go test -short", and so "make test", runs. Without
// -short, as in "make check", tests are complete.
package scale

import "testing"

// share is the number of rounds of a complete test per round of a short test.
const share = 10

// few is the minimum number of rounds of a short test: tests that select variants by the seed modulo two,
// three or four run each variant.
const few = 4

// Rounds returns the number of rounds, seeds or cases of a test with all rounds: all, or with -short a tenth,
// and at least four. A test that loops from 0 to Rounds(all) repeats the first cases of the complete test.
func Rounds(all int) int {
	if !testing.Short() {
		return all
	}
	return min(all, max(few, (all+share-1)/share))
}
