// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"testing"
)

// sitesOf returns sites of packages, by their numbers.
func sitesOf(numbers map[string]int) (all []*site) {
	for name, n := range numbers {
		for i := range n {
			all = append(all, &site{result: result{
				identity: identity{Package: name, Function: fmt.Sprint("F", i)},
			}})
		}
	}
	return all
}

// known returns the identities of sites, by their packages.
func known(sites []*site) map[string][]identity {
	all := map[string][]identity{}
	for _, s := range sites {
		all[s.Package] = append(all[s.Package], s.identity)
	}
	return all
}

// TestDraw: a sample is in proportion to the sites, has some of each package, and is the same each time.
func TestDraw(t *testing.T) {
	numbers := map[string]int{"large": 900, "small": 95, "tiny": 5}
	first := known(draw(sitesOf(numbers), 100, 10, 1))
	if len(first["large"]) != 90 || len(first["small"]) != 10 || len(first["tiny"]) != 5 {
		t.Errorf("sampled %d, %d, %d", len(first["large"]), len(first["small"]), len(first["tiny"]))
	}
	for name, again := range known(draw(sitesOf(numbers), 100, 10, 1)) {
		if !slices.Equal(again, first[name]) {
			t.Errorf("another sample of %s", name)
		}
	}
	if other := known(draw(sitesOf(numbers), 100, 10, 2)); slices.Equal(other["large"], first["large"]) {
		t.Error("another seed has the same sample")
	}
}

// TestDrawAfterChange: a package with more sites keeps nearly all of its sample.
func TestDrawAfterChange(t *testing.T) {
	before := known(draw(sitesOf(map[string]int{"p": 900, "q": 100}), 100, 10, 1))["p"]
	after := known(draw(sitesOf(map[string]int{"p": 920, "q": 100}), 100, 10, 1))["p"]
	kept := 0
	for _, id := range before {
		if slices.Contains(after, id) {
			kept++
		}
	}
	if kept < len(before)-10 {
		t.Errorf("%d of %d are kept", kept, len(before))
	}
}
