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

// unknownKeys lists the keys of a JSON object that a struct has no field for, sorted.
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

// keysOf lists the keys that encoding/json reads into a struct, those of embedded structs included.
func keysOf(t reflect.Type) []string {
	var keys []string
	for _, field := range reflect.VisibleFields(t) {
		if tag := field.Tag.Get("json"); tag != "" && tag != "-" {
			keys = append(keys, tag)
		}
	}
	return keys
}
