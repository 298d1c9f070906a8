package pools

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// place is where else keys are read, and what to do with one that is meant for it.
type place struct {
	keys []string
	move string
}

// A key of selectors is easily written into the resource, and the other way round.
var (
	intoSelectors = place{keysOf(reflect.TypeFor[Selector]()), "put it into selectors"}
	besideThem    = place{
		keysOf(reflect.TypeFor[ResourceConfig]()), "put it beside selectors, not into it",
	}
	intoSharedSelectors = place{keysOf(reflect.TypeFor[sharedSelector]()), "put it into selectors"}
	besideSharedOnes    = place{
		keysOf(reflect.TypeFor[sharedResource]()), "put it beside selectors, not into it",
	}
)

// ignored says of each key of a JSON object that nobody reads there that it is unknown, as the text has it,
// and which one is meant, as far as that shows.
func ignored(object json.RawMessage, into reflect.Type, text string, others ...place) (warnings []string) {
	for _, key := range unknownKeys(object, into) {
		warning := fmt.Sprintf("key %q is %s", key, text)
		if meant := meant(key, keysOf(into), others); meant != "" {
			warning += ": " + meant
		}
		warnings = append(warnings, warning)
	}
	return warnings
}

// meant is what to do about an unknown key; "" where it is like none that there is.
func meant(key string, known []string, others []place) string {
	best, least := "", len(key)
	for _, k := range known {
		if like, far := similar(strings.ToLower(key), strings.ToLower(k)); like && far < least {
			best, least = k, far
		}
	}
	if best != "" {
		return fmt.Sprintf("want %q", best)
	}
	for _, other := range others {
		if slices.ContainsFunc(other.keys, func(k string) bool { return strings.EqualFold(k, key) }) {
			return other.move
		}
	}
	return ""
}

// similar reports whether one word may have been meant by the other: with a mistake or two, or a part of it.
func similar(a, b string) (like bool, far int) {
	const part, long = 4, 5
	far = edits(a, b)
	most := 1
	if min(len(a), len(b)) >= long {
		most = 2
	}
	contains := strings.Contains(a, b) || strings.Contains(b, a)
	return far <= most || contains && min(len(a), len(b)) >= part, far
}

// edits is the Levenshtein distance: how many letters have to be put in, taken out or replaced.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			above := row[j+1]
			replace := corner
			if a[i] != b[j] {
				replace++
			}
			row[j+1] = min(replace, above+1, row[j]+1)
			corner = above
		}
	}
	return row[len(b)]
}
