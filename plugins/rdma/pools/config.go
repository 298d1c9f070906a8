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
	"time"

	"github.com/tandem-k8s/tandem/coordination/spelling"
)

// Config is a configuration in the format of the stock SR-IOV network device plugin, of the RDMA shared
// device plugin or of both, read and checked.
type Config struct {
	File      string           // path, for messages
	Resources []ResourceConfig // in the order of the file; omitted ones are in Warnings
	Warnings  []string         // sentences about ignored settings
	// the interval of scans if changes are not reported; 0 for none
	Interval time.Duration
}

// label names a resource for people, by its position in a list if it has no name.
func label(resource string, position int, list string) string {
	if resource == "" {
		return fmt.Sprintf("resource %d of %s", position, list)
	}
	return fmt.Sprintf("resource %q", resource)
}

// checkNew returns an error for an invalid or duplicate name.
func (c *Config) checkNew(name string, r ResourceConfig) error {
	same := func(o ResourceConfig) bool { return o.Name == r.Name && o.Prefix == r.Prefix }
	switch {
	case r.Name == "":
		return errors.New(c.missing(name + ": resourceName is missing"))
	case !stockName.MatchString(r.Name):
		return fmt.Errorf("%s: resourceName may have letters, digits, - and _", name)
	case slices.ContainsFunc(c.Resources, same):
		return fmt.Errorf("%s: resourceName is there twice", name)
	default:
		return nil
	}
}

// missing completes the text about a missing key by the warnings, one of which may name the key, misspelt.
func (c *Config) missing(text string) string {
	return strings.Join(slices.Concat([]string{text}, c.Warnings), "; ")
}

// addOwn adds the keys of a resource that only Tandem knows.
func (c *Config) addOwn(name string, raw, rawTandem json.RawMessage, r *ResourceConfig) {
	if err := json.Unmarshal(raw, &r.Health); err != nil {
		c.warn("%s: health is not checked: %v", name, explain(err, raw))
		r.Health = Health{}
	}
	tandem, warnings := readTandem(rawTandem)
	r.Tandem = tandem
	c.warnAll(name+": ", warnings)
}

// readTandem reads the valid parts of the key "tandem".
func readTandem(raw json.RawMessage) (t Tandem, warnings []string) {
	if len(raw) == 0 {
		return t, nil
	}
	if err := json.Unmarshal(raw, &t); err != nil {
		return Tandem{}, []string{fmt.Sprintf("tandem is left out: %v", explain(err, raw))}
	}
	for _, warning := range ignored(raw, reflect.TypeFor[Tandem](), "unknown and ignored") {
		warnings = append(warnings, "tandem: "+warning)
	}
	t.Variables = slices.DeleteFunc(t.Variables, func(variable string) bool {
		known := slices.Contains(PairVariables, variable)
		if !known {
			const unknown = "tandem: variables: %q is unknown and left out; want some of %s"
			warnings = append(warnings, fmt.Sprintf(unknown, variable, strings.Join(PairVariables, ", ")))
		}
		return !known
	})
	return t, warnings
}

func (c *Config) warn(format string, args ...any) {
	c.Warnings = append(c.Warnings, fmt.Sprintf(format, args...))
}

// warnAll adds warnings with a common beginning.
func (c *Config) warnAll(about string, warnings []string) {
	for _, warning := range warnings {
		c.Warnings = append(c.Warnings, about+warning)
	}
}

// warnUnknown warns of keys of a JSON object that are absent from the struct into; others are places to which
// such keys may belong.
func (c *Config) warnUnknown(where string, object json.RawMessage, into any, others ...place) {
	c.warnAll(where, ignored(object, reflect.TypeOf(into), "unknown and ignored", others...))
}

// Checks reports whether any resource wants a check of health.
func (c *Config) Checks(wanted func(Health) bool) bool {
	return slices.ContainsFunc(c.Resources, func(r ResourceConfig) bool { return wanted(r.Health) })
}

// Shares reports whether some of the resources share HCAs, and whether all do.
func (c *Config) Shares() (some, all bool) {
	shared := func(r ResourceConfig) bool { return r.DeviceType == SharedHCA }
	other := func(r ResourceConfig) bool { return !shared(r) }
	return slices.ContainsFunc(c.Resources, shared), !slices.ContainsFunc(c.Resources, other)
}

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
