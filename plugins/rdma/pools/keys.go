// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// explain puts an error of encoding/json into words for people.
func explain(err error, content []byte) error {
	var syntax *json.SyntaxError
	var mismatch *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		line := 1 + bytes.Count(content[:min(max(int(syntax.Offset)-1, 0), len(content))], []byte("\n"))
		return fmt.Errorf("not JSON: line %d: %w", line, err)
	case errors.As(err, &mismatch) && mismatch.Field == "":
		return fmt.Errorf("want %s, found %s", inWords(mismatch.Type), mismatch.Value)
	case errors.As(err, &mismatch):
		// embedded structs are part of the field's path
		key := mismatch.Field[strings.LastIndexByte(mismatch.Field, '.')+1:]
		return fmt.Errorf("%s: want %s, found %s", key, inWords(mismatch.Type), mismatch.Value)
	default:
		return err
	}
}

func inWords(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[Exclusion]():
		return `true, false or "auto"`
	case t == reflect.TypeFor[vfItem](), t.Kind() == reflect.String:
		return "a string"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.Int:
		return "a whole number"
	case t.Kind() == reflect.Slice:
		return "a list"
	default:
		return "an object"
	}
}

// place lists keys that belong elsewhere, with the advice for such a key.
type place struct {
	keys []string
	move string
}

// ignored returns a warning for each key of a JSON object that the struct lacks, with the likely intended
// key.
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

// unknownKeys returns the keys of a JSON object without a field in a struct, sorted.
func unknownKeys(object json.RawMessage, into reflect.Type) []string {
	var fields map[string]json.RawMessage
	if json.Unmarshal(object, &fields) != nil {
		return nil
	}
	var unknown []string
	for key := range fields {
		known := slices.ContainsFunc(keysOf(into), func(k string) bool { return strings.EqualFold(k, key) })
		if !known {
			unknown = append(unknown, key)
		}
	}
	slices.Sort(unknown)
	return unknown
}

// keysOf returns the keys that encoding/json reads into a struct, including those of embedded structs.
func keysOf(t reflect.Type) []string {
	var keys []string
	for _, field := range reflect.VisibleFields(t) {
		if tag := field.Tag.Get("json"); tag != "" && tag != "-" {
			keys = append(keys, tag)
		}
	}
	return keys
}

// meant returns the advice for an unknown key, "" if no key is similar.
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

// similar reports whether a and b differ by a typo or two, or one contains the other, and returns their
// distance.
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

// edits returns the Levenshtein distance: the number of inserted, deleted or replaced letters.
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
