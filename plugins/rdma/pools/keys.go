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

	"github.com/tandem-k8s/tandem/coordination/spelling"
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
	if nearest := spelling.Nearest(key, known); len(nearest) > 0 {
		return fmt.Sprintf("want %q", nearest[0])
	}
	for _, other := range others {
		if slices.ContainsFunc(other.keys, func(k string) bool { return strings.EqualFold(k, key) }) {
			return other.move
		}
	}
	return ""
}
