// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/test/machines"
)

// most is a claim for as many pairs as there are up to four.
func (n *node) most(name string) (*resourceapi.ResourceClaim, int) {
	for count := 4; count > 0; count /= 2 {
		if claim := n.claim(name, want{"pairs", pool.TypePair, count}); claim != nil {
			return claim, count
		}
	}
	return nil, 0
}

// Pairs are handed out as they are named, in one order of GPUs and VFs, on every machine; a second prepare
// says the same, and afterwards nothing is left.
func TestPairs(t *testing.T) {
	for _, machine := range machines.Names() {
		for _, vfs := range []int{1, 4} {
			for _, counters := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s/%d/%v", machine, vfs, counters), func(t *testing.T) {
					t.Parallel()
					n := newNode(t, machine, vfs, toldVFs, counters)
					claim, count := n.most("train")
					if count == 0 {
						t.Skip("no pair on this machine")
					}
					first := n.ready(claim)
					if len(first) != count || len(first[0].CDIDeviceIDs) == 0 || first[0].PoolName != poolName {
						t.Fatalf("answer %+v", first)
					}
					n.check(claim)
					n.aligned(claim, count)
					edits := n.edits(claim, "pairs")
					ids := strings.Split(variable(edits, "PCIDEVICE_TANDEM_DEV_RDMA_VF"), ",")
					if len(ids) != count || len(edits.Mounts) != 1 || variable(edits, "NCCL_IB_HCA") == "" {
						t.Errorf("environment %q, mounts %v", edits.Env, edits.Mounts)
					}
					if again := n.ready(claim); fmt.Sprint(again) != fmt.Sprint(first) {
						t.Errorf("first %v, then %v", first, again)
					}
					if n.asked.Load() > 0 {
						t.Errorf("asked for %d pods", n.asked.Load())
					}
					if bound, _ := Bound([]Claim{n.prepared(claim.UID)}); len(bound) != count {
						t.Errorf("bound %v", bound)
					}
					if err := n.end(claim); err != nil {
						t.Fatal(err)
					}
					n.check()
				})
			}
		}
	}
}

// Who does not want to be told of pairs is not.
func TestUntold(t *testing.T) {
	n := newNode(t, "oci-mi300x-derived", 4, plainVFs, true)
	claim := n.need("train", want{"pairs", pool.TypePair, 2})
	n.ready(claim)
	edits := n.edits(claim, "pairs")
	if len(edits.Mounts) > 0 || len(edits.Env) != 2 || len(names(n.Host.PairsDir)) > 0 {
		t.Errorf("environment %q, mounts %v, pairs files %v", edits.Env, edits.Mounts, names(n.Host.PairsDir))
	}
}

// The checkpoint has the pods of a claim, which nothing else tells once the claim is deleted by force.
func TestPodsOfAClaim(t *testing.T) {
	n := newNode(t, "oci-mi300x-derived", 1, plainVFs, true)
	claim := n.need("train", want{"gpu", pool.TypeGPU, 1})
	n.ready(claim)
	if pods := n.prepared(claim.UID).Pods; !slices.Equal(pods, []Pod{{Name: "pod", UID: "pod"}}) {
		t.Errorf("pods %v", pods)
	}
}
