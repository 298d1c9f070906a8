// SPDX-License-Identifier: Apache-2.0

// Package scale is the one place that says how much of a test "go test -short", and with it "make test",
// runs. Without -short, as "make check" runs them, tests are whole.
package scale

import "testing"

// share is how many rounds of a whole test stand for one round of a short test.
const share = 10

// few are the rounds that a short test runs at least: tests that choose a variant by the remainder of the
// seed divided by two, three or four run each variant.
const few = 4

// Rounds returns the number of rounds, seeds or cases of a test that has all of them when it is whole: all,
// or with -short one in ten, and at least four. A test that loops from 0 to Rounds(all) repeats the first
// cases of the whole test.
func Rounds(all int) int {
	if !testing.Short() {
		return all
	}
	return min(all, max(few, (all+share-1)/share))
}
