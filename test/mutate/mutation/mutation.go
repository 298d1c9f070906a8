// SPDX-License-Identifier: Apache-2.0

// Package mutation is imported by rewritten code, which has all mutations of the sample at once: the
// environment switches one on.
package mutation

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
)

const (
	// Active is the environment variable with the number of the mutation that is on.
	Active = "TANDEM_MUTATION"
	// Reached is the environment variable with a file that gets the number of each site that runs.
	Reached = "TANDEM_MUTATIONS_REACHED"
	// Limit is the first number that no site can have.
	Limit = 1 << 16
)

var (
	active  = number(os.Getenv(Active))
	reached = os.Getenv(Reached)
	seen    [Limit]atomic.Bool
)

// number returns the number of a mutation, and -1 for none.
func number(text string) int {
	if n, err := strconv.Atoi(text); err == nil {
		return n
	}
	return -1
}

// On reports whether the mutation of a site is on. The site of a dropped statement runs it if not.
func On(site int) bool {
	if reached != "" && !seen[site].Swap(true) {
		record(site)
	}
	return site == active
}

// record appends a site to the file of reached sites. No file stays open, because tests count open files.
func record(site int) {
	file, err := os.OpenFile(reached, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(fmt.Errorf("record a reached mutation: %w", err))
	}
	defer file.Close()
	if _, err := fmt.Fprintln(file, site); err != nil {
		panic(fmt.Errorf("record a reached mutation: %w", err))
	}
}

// Not returns a condition, and the contrary with the mutation.
func Not(site int, condition bool) bool { return condition != On(site) }

// Pick returns the original, and the other value with the mutation.
func Pick[T any](site int, original, other T) T {
	if On(site) {
		return other
	}
	return original
}

// Less is a < b, and a <= b with the mutation.
func Less[T cmp.Ordered](site int, a, b T) bool {
	if On(site) {
		return a <= b
	}
	return a < b
}

// LessEqual is a <= b, and a < b with the mutation.
func LessEqual[T cmp.Ordered](site int, a, b T) bool { return !Less(site, b, a) }

// Greater is a > b, and a >= b with the mutation.
func Greater[T cmp.Ordered](site int, a, b T) bool { return Less(site, b, a) }

// GreaterEqual is a >= b, and a > b with the mutation.
func GreaterEqual[T cmp.Ordered](site int, a, b T) bool { return !Less(site, a, b) }
