// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"testing"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
)

// A VF is handed out for a token only if nobody has it: neither a claim, nor a pod with devices from a device
// plugin.
func TestAvailableVFs(t *testing.T) {
	vf := func(id, fault, held string) pool.VF {
		return pool.VF{Device: pools.Device{ID: id, Fault: fault}, Held: held}
	}
	n := newNodeIndex(State{Machine: pool.Machine{VFs: []pool.VF{
		vf("free", "", ""), vf("faulty", "no netdev", ""), vf("outside", "", "pod team/old"), vf("claimed", "", ""),
		vf("token", "", ""),
	}}})
	n.hold(Claim{Devices: []Prepared{{VFs: []string{"claimed"}, Token: "token"}}})
	for _, id := range []string{"free", "faulty", "outside", "claimed", "token", "none"} {
		if got := n.available(id); got != (id == "free") {
			t.Errorf("%s is available: %t", id, got)
		}
	}
}
