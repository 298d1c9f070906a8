// Package scale is the one place that says how much of a test "go test -short", and with it "make test",
// runs. Without -short, as "make check" runs them, tests are whole.
package scale

import "testing"

// share is how many rounds of a whole test stand for one round of a short test.
const share = 10

// Rounds returns the number of rounds, seeds or cases that a test runs which has all of them when it is
// whole: all, or at least one in ten with -short. A test that loops from 0 to Rounds(all) repeats the first
// cases of the whole test.
func Rounds(all int) int {
	if !testing.Short() {
		return all
	}
	return (all + share - 1) / share
}
