// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"fmt"
	"slices"
	"strings"
)

// Source names where a decision's knowledge of the request comes from.
type Source string

// The sources, best first. Inference is what remains without any: order and time.
const (
	PodsAPI      Source = "pods-api"
	Kubelet      Source = "kubelet"
	APIServer    Source = "api-server"
	PodResources Source = "podresources"
	Inference    Source = "inference"
)

// Choice is the sources that may be used, as the flag --intent spells them: names with commas between.
type Choice []Source

// Default is what costs nothing and needs no right.
var Default = Choice{PodsAPI, PodResources}

// MarshalText prints the names with commas between.
func (c Choice) MarshalText() ([]byte, error) {
	names := make([]string, len(c))
	for i, s := range c {
		names[i] = string(s)
	}
	return []byte(strings.Join(names, ",")), nil
}

// UnmarshalText accepts names with commas between, in any order; none at all leaves inference.
func (c *Choice) UnmarshalText(text []byte) error {
	choosable := Choice{PodsAPI, Kubelet, APIServer, PodResources}
	named := map[Source]bool{}
	for name := range strings.SplitSeq(string(text), ",") {
		source := Source(strings.TrimSpace(name))
		if source == "" {
			continue
		}
		if !slices.Contains(choosable, source) {
			all, _ := choosable.MarshalText()
			return fmt.Errorf("unknown source %q, want some of %s", source, all)
		}
		named[source] = true
	}
	*c = slices.DeleteFunc(choosable, func(s Source) bool { return !named[s] })
	return nil
}

// Has reports whether a source may be used.
func (c Choice) Has(s Source) bool { return slices.Contains(c, s) }
