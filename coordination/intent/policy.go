// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
)

// Alignment is the requirement on the pairs of a container: preferably or necessarily on one switch each.
type Alignment string

// The two alignments.
const (
	Preferred Alignment = "preferred"
	Required  Alignment = "required"
)

// MarshalText returns the value of the flag and the annotation.
func (a Alignment) MarshalText() ([]byte, error) { return []byte(a), nil }

// UnmarshalText accepts "preferred" and "required".
func (a *Alignment) UnmarshalText(text []byte) error {
	switch alignment := Alignment(text); alignment {
	case Preferred, Required:
		*a = alignment
		return nil
	default:
		return fmt.Errorf("want %s or %s", Preferred, Required)
	}
}

// Policy is the administrator's policy for annotations of pods.
type Policy struct {
	Alignment Alignment  // of pods without annotation; "" is Preferred
	Choose    Namespaces // whose pods may name devices
	OptOut    Namespaces // whose pods may choose Preferred if Alignment is Required
}

// Publish returns the policy for alignment as the node publishes it.
func (p Policy) Publish() model.Alignment {
	a := model.Alignment{Required: p.Alignment == Required}
	if text, err := p.OptOut.MarshalText(); err == nil && string(text) != none {
		a.OptOut = string(text)
	}
	return a
}

// PublishedPolicy returns the policy for alignment of a node that publishes it.
func PublishedPolicy(a model.Alignment) (p Policy, err error) {
	if a.Required {
		p.Alignment = Required
	}
	if err := p.OptOut.UnmarshalText([]byte(cmp.Or(a.OptOut, none))); err != nil {
		return p, fmt.Errorf("read namespaces %.64q of the alignment: %w", a.OptOut, err)
	}
	return p, nil
}

// none is the text of an empty set of namespaces.
const none = "none"

// Namespaces is a set of namespaces, or all. The zero value is empty.
type Namespaces struct {
	all   bool
	names []string
}

// AllNamespaces contains every namespace.
var AllNamespaces = Namespaces{all: true}

// Has reports whether the set contains a namespace.
func (n Namespaces) Has(name string) bool { return n.all || slices.Contains(n.names, name) }

// MarshalText returns "all", "none", or comma-separated names.
func (n Namespaces) MarshalText() ([]byte, error) {
	switch {
	case n.all:
		return []byte("all"), nil
	case len(n.names) == 0:
		return []byte(none), nil
	default:
		return []byte(strings.Join(n.names, ",")), nil
	}
}

// UnmarshalText accepts the results of MarshalText.
func (n *Namespaces) UnmarshalText(text []byte) error {
	var read Namespaces
	switch string(text) {
	case "all":
		read = AllNamespaces
	case none:
	default:
		for name := range strings.SplitSeq(string(text), ",") {
			name = strings.TrimSpace(name)
			if name == "" || name == "all" || name == none {
				return errors.New("want all, none, or names of namespaces with commas between")
			}
			read.names = append(read.names, name)
		}
	}
	*n = read
	return nil
}
