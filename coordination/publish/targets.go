// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"fmt"
	"slices"
	"strings"
)

// Target is a way of publishing a node.
type Target string

// The targets.
const (
	Tandem    Target = "tandem"    // NodeTopology, Tandem's own object
	NRT       Target = "nrt"       // NodeResourceTopology
	NFD       Target = "nfd"       // labels, by a NodeFeature
	NFDFile   Target = "nfd-file"  // the same, by a local feature file
	KubeNexus Target = "kubenexus" // the labels for KubeNexus, next to those of nfd or nfd-file
)

// All are the targets, in the order of the documents.
var All = []Target{Tandem, NRT, NFD, NFDFile, KubeNexus}

// Targets are the values of --publish.
type Targets []Target

// Has reports whether the targets include target.
func (t Targets) Has(target Target) bool { return slices.Contains(t, target) }

// MarshalText joins the targets with commas.
func (t Targets) MarshalText() ([]byte, error) {
	var words []string
	for _, target := range t {
		words = append(words, string(target))
	}
	return []byte(strings.Join(words, ",")), nil
}

// UnmarshalText parses the format of MarshalText; "" means none.
func (t *Targets) UnmarshalText(text []byte) error {
	read := Targets{}
	for word := range strings.SplitSeq(string(text), ",") {
		target := Target(strings.TrimSpace(word))
		switch {
		case target == "" && len(text) == 0:
		case !slices.Contains(All, target):
			return fmt.Errorf("unknown target %q: want some of tandem, nrt, nfd, nfd-file and kubenexus, with commas "+
				"between", target)
		case !read.Has(target):
			read = append(read, target)
		}
	}
	if read.Has(KubeNexus) && !read.Has(NFD) && !read.Has(NFDFile) {
		return fmt.Errorf("%s adds labels to those of %s or %s: name one of them too", KubeNexus, NFD, NFDFile)
	}
	*t = read
	return nil
}
