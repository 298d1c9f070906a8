// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
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
