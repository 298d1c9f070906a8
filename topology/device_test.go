// SPDX-License-Identifier: Apache-2.0

package topology_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/topology"
)

func TestParseAddress(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		text string
		want topology.Address
	}{
		{"0000:00:00.0", topology.Address{}},
		{"0000:81:00.1", topology.Address{Bus: 0x81, Function: 1}},
		{"ABCD:EF:1F.7", topology.Address{Domain: 0xabcd, Bus: 0xef, Device: 0x1f, Function: 7}},
		{"10000:e1:00.0", topology.Address{Domain: 0x10000, Bus: 0xe1}},
		{"ffffffff:00:00.0", topology.Address{Domain: 0xffffffff}},
	} {
		got, err := topology.ParseAddress(test.text)
		if err != nil || got != test.want {
			t.Errorf("ParseAddress(%s) = %v, %v; want %v", test.text, got, err, test.want)
		}
		if got.String() != strings.ToLower(test.text) {
			t.Errorf("%s is printed as %s", test.text, got)
		}
	}
}

func TestParseAddressErrors(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "81:00.0", "0000:81:00", "0000:81:00.", "0000:81:00.8", "0000:81:20.0", "0000:181:00.0", "000:81:00.0",
		"00000:81:00.0", "100000000:81:00.0", "0000:81:00.0 ", " 0000:81:00.0", "0000:81:00.0\n", "0000:8x:00.0",
		"0000:81:00:0", "+000:81:00.0", "0x00:81:00.0", "0000:_1:00.0", "0000:81:00.00", "0000.81.00.0",
	} {
		a, err := topology.ParseAddress(text)
		if err == nil {
			t.Errorf("ParseAddress(%q) = %v, want an error", text, a)
		}
	}
}

func TestAddressOrder(t *testing.T) {
	t.Parallel()
	ascending := addresses("0000:00:00.0", "0000:00:00.7", "0000:00:01.0", "0000:01:00.0", "0001:00:00.0",
		"10000:00:00.0")
	if !slices.IsSortedFunc(ascending, topology.Address.Compare) {
		t.Error("Compare is not by domain, bus, device and function")
	}
}

func TestAddressInJSON(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(map[topology.Address]topology.Address{
		address("0000:81:00.0"): address("10000:82:1f.7"),
	})
	if want := `{"0000:81:00.0":"10000:82:1f.7"}`; err != nil || string(text) != want {
		t.Errorf("Marshal = %s, %v; want %s", text, err, want)
	}
	var back map[topology.Address]topology.Address
	if err := json.Unmarshal(text, &back); err != nil ||
		back[address("0000:81:00.0")] != address("10000:82:1f.7") {
		t.Errorf("Unmarshal = %v, %v", back, err)
	}
	if err := json.Unmarshal([]byte(`"0000:81:00"`), new(topology.Address)); err == nil {
		t.Error("0000:81:00 is accepted")
	}
}

// FuzzAddress: what is accepted is printed the same way whatever the case, and read back as the same address.
func FuzzAddress(f *testing.F) {
	for _, seed := range []string{"0000:81:00.0", "10000:E1:1f.7", "ffffffff:00:00.0", "0000:81:00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := topology.ParseAddress(text)
		if err != nil {
			return
		}
		if a.String() != strings.ToLower(text) {
			t.Errorf("%q is printed as %q", text, a)
		}
		if back, err := topology.ParseAddress(a.String()); err != nil || back != a {
			t.Errorf("%v is read back as %v, %v", a, back, err)
		}
	})
}
