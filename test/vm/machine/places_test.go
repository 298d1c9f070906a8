// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// The machine's root buses are those of the server whose tree it has.
func TestPlaces(t *testing.T) {
	list, err := ServerPlaces(MI300X.Server)
	if err != nil {
		t.Fatal(err)
	}
	const want = "/sys/devices/pci0000:07/0000:07:00.0/0000:08:00.0/0000:09:00.0/0000:0a:00.0/0000:0b:00.0/" +
		"0000:0c:00.0 0"
	if list[0] != want {
		t.Errorf("the first is %s, want %s", list[0], want)
	}
	if len(list) != 2*MI300X.perSwitch*len(MI300X.buses) {
		t.Errorf("there are %d GPUs and NICs", len(list))
	}
	for n, bus := range MI300X.buses {
		root := fmt.Sprintf("/sys/devices/pci0000:%02x/", bus)
		node := fmt.Sprintf(" %d", n*sockets/len(MI300X.buses))
		if !slices.ContainsFunc(list,
			func(s string) bool { return strings.HasPrefix(s, root) && strings.HasSuffix(s, node) }) {
			t.Errorf("%s has no root bus %02x on NUMA node%s", MI300X.Server, bus, node)
		}
	}
}
