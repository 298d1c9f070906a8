// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"encoding/json"
	"reflect"
	"slices"

	"github.com/tandem-k8s/tandem/topology"
)

// Exclusion is a value of excludeTopology: whether the NUMA nodes of a pool are withheld from the kubelet.
// The stock plugin knows true and false.
type Exclusion string

// The values of excludeTopology.
const (
	Auto   Exclusion = ""      // "auto", or no key: if the hints would cost admissions
	Never  Exclusion = "false" // false
	Always Exclusion = "true"  // true
)

// UnmarshalJSON reads true, false or "auto"; null changes nothing, as for every key.
func (e *Exclusion) UnmarshalJSON(text []byte) error {
	switch string(text) {
	case "null":
	case "false":
		*e = Never
	case "true":
		*e = Always
	case `"auto"`:
		*e = Auto
	default:
		return &json.UnmarshalTypeError{Value: kindOf(text), Type: reflect.TypeFor[Exclusion]()}
	}
	return nil
}

// kindOf names a JSON value as encoding/json does; a string is the value itself.
func kindOf(text []byte) string {
	switch text[0] {
	case '{':
		return "object"
	case '[':
		return "array"
	case '"':
		return string(text)
	default:
		return "number"
	}
}

// Decision is the decision about the hints of a pool.
type Decision struct {
	Hints bool
	Why   string // the rest of a sentence, after "because"
}

// String returns the decision for people.
func (d Decision) String() string {
	if d.Hints {
		return "excludeTopology auto: NUMA hints, because " + d.Why
	}
	return "excludeTopology auto: no NUMA hints, because " + d.Why
}

// Decided returns the pool after a decision about its hints.
func (p Pool) Decided(d Decision) Pool {
	p.Decision = d.String()
	if !d.Hints {
		p.Devices = slices.Clone(p.Devices)
		for i := range p.Devices {
			p.Devices[i].NUMA = topology.NUMANode{}
		}
	}
	return p
}
