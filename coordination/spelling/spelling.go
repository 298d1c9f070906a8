// SPDX-License-Identifier: Apache-2.0

// Package spelling lists known words for people, and finds those that a misspelled word probably means.
package spelling

import (
	"math"
	"slices"
	"strings"
)

// List returns words as "a, b or c", without empty ones.
func List(words []string) string {
	words = slices.DeleteFunc(slices.Clone(words), func(word string) bool { return word == "" })
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// Question returns " (did you mean NAME?)" with the nearest of the known words, or "" if no word is similar.
func Question(word string, known []string) string { return Propose(Nearest(word, known)) }

// Propose returns " (did you mean NAME?)" with the nearest words of a word, or "" without any. Many equally
// near words, as for a PCI address, are no proposal.
func Propose(nearest []string) string {
	const few = 3
	if len(nearest) == 0 || len(nearest) > few {
		return ""
	}
	return " (did you mean " + strings.Join(nearest, " or ") + "?)"
}

// Nearest returns the known words with the smallest distance to a word, regardless of case. Words that are
// not similar are not among them.
func Nearest(word string, known []string) (nearest []string) {
	least := math.MaxInt
	for _, k := range known {
		switch like, distance := areSimilar(strings.ToLower(word), strings.ToLower(k)); {
		case !like || distance > least || slices.Contains(nearest, k):
		case distance < least:
			nearest, least = []string{k}, distance
		default:
			nearest = append(nearest, k)
		}
	}
	return nearest
}

// areSimilar reports whether a and b differ by a typo or two, one contains the other, or b begins with a. It
// also returns their distance.
func areSimilar(a, b string) (like bool, distance int) {
	const start, part, long = 3, 4, 5
	distance = countEdits(a, b)
	most := 1
	if min(len(a), len(b)) >= long {
		most = 2
	}
	contains := strings.Contains(a, b) || strings.Contains(b, a)
	begins := len(a) >= start && strings.HasPrefix(b, a)
	typo := distance <= most && distance < len(a)
	return typo || begins || contains && min(len(a), len(b)) >= part, distance
}

// countEdits returns the number of inserted, deleted and replaced letters, and of exchanged neighbours (the
// distance of optimal string alignment).
func countEdits(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			replace := rows[i-1][j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			rows[i][j] = min(replace, rows[i-1][j]+1, rows[i][j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
