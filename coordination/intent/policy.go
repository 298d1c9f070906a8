// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"errors"
	"slices"
	"strings"
)

// Policy is what an administrator lets pods say in their annotations.
type Policy struct {
	Alignment Alignment  // of pods that say nothing; "" is Preferred
	Choose    Namespaces // whose pods may name the devices that they want
	OptOut    Namespaces // whose pods may have Preferred where Alignment is Required
}

// Namespaces are some, or all, or none. The zero value is none.
type Namespaces struct {
	all   bool
	names []string
}

// AllNamespaces are all.
var AllNamespaces = Namespaces{all: true}

// Has reports whether a namespace is one of them.
func (n Namespaces) Has(name string) bool { return n.all || slices.Contains(n.names, name) }

// MarshalText prints "all", "none", or the names with commas between.
func (n Namespaces) MarshalText() ([]byte, error) {
	switch {
	case n.all:
		return []byte("all"), nil
	case len(n.names) == 0:
		return []byte("none"), nil
	default:
		return []byte(strings.Join(n.names, ",")), nil
	}
}

// UnmarshalText accepts what MarshalText prints.
func (n *Namespaces) UnmarshalText(text []byte) error {
	var read Namespaces
	switch string(text) {
	case "all":
		read = AllNamespaces
	case "none":
	default:
		for name := range strings.SplitSeq(string(text), ",") {
			name = strings.TrimSpace(name)
			if name == "" || name == "all" || name == "none" {
				return errors.New("want all, none, or names of namespaces with commas between")
			}
			read.names = append(read.names, name)
		}
	}
	*n = read
	return nil
}
