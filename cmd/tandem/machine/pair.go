// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// Pair is a GPU and a VF that serve each other, as JSON has them.
type Pair struct {
	GPU      string         `json:"gpu"`
	VF       string         `json:"vf"`
	Distance topology.Level `json:"distance"`
	Bridges  int            `json:"bridges"`
}

// NewPair is a pair that placement made.
func NewPair(p placement.Pair) Pair {
	return Pair{p.GPU.ID, p.VF.ID, p.Distance.Level, p.Distance.Bridges}
}
