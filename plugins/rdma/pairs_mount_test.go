// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"maps"
	"slices"
	"testing"

	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
)

// The variables that a configuration may have are those that something is known to say of.
func TestEveryPairVariableIsKnown(t *testing.T) {
	if got := slices.Sorted(maps.Keys(pairVariables)); !slices.Equal(got, pools.PairVariables) {
		t.Errorf("%v can be told; %v can be asked for", got, pools.PairVariables)
	}
}
