// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// Pair is a GPU and a VF that form a pair, in JSON.
type Pair struct {
	GPU      string         `json:"gpu"`
	VF       string         `json:"vf"`
	Distance topology.Level `json:"distance"`
	Bridges  int            `json:"bridges"`
}

// NewPair converts a pair of package placement.
func NewPair(p placement.Pair) Pair {
	return Pair{p.GPU.ID, p.VF.ID, p.Distance.Level, p.Distance.Bridges}
}
