// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/test/functions"
	"github.com/tandem-k8s/tandem/test/machines"
)

// TestNoFunctionIsDropped: each network function of a machine is a NIC, a VF, a DMA function, or named in a
// note as left out.
func TestNoFunctionIsDropped(t *testing.T) {
	t.Parallel()
	all := map[string]fs.FS{"connectx7": functions.ConnectX7(functions.Bridges...).FS()}
	for _, name := range machines.Names() {
		m, err := machines.Load(name, 0)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = m.FS()
	}
	for name, sys := range all {
		n, err := ReadFS(sys, &Source{})
		if err != nil {
			t.Fatal(err)
		}
		for d := range n.Tree.Devices() {
			isDMA := d.Vendor == 0x15b3 && d.Product == 0x2100
			if d.Class.IsNetwork() && !slices.Contains(n.NICs, d) && !d.IsVF() && !isDMA &&
				!strings.Contains(strings.Join(n.Notes, "\n"), d.Address.String()) {
				t.Errorf("%s: %s is not among the NICs, and no note says so", name, d.Address)
			}
		}
	}
}
