// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"testing"

	"github.com/tandem-k8s/tandem/topology"
)

func address(s string) topology.Address {
	a, err := topology.ParseAddress(s)
	if err != nil {
		panic(err)
	}
	return a
}

func TestAddressAfter(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		pf   string
		plus int
		want string
	}{
		{"0000:0c:00.0", 255, "0000:0c:1f.7"},
		{"0000:0c:00.0", 256, "0000:0d:00.0"},
		{"10000:fe:1f.0", 8, "10000:ff:00.0"},
	} {
		if got, err := addressAfter(address(test.pf), test.plus); err != nil || got != address(test.want) {
			t.Errorf("after(%s, %d) = %v, %v; want %s", test.pf, test.plus, got, err, test.want)
		}
	}
	if _, err := addressAfter(address("0000:ff:00.0"), 256); err == nil {
		t.Error("after bus ff: want an error")
	}
}
