// SPDX-License-Identifier: Apache-2.0

package main

import (
	"regexp"
	"testing"

	sysfstest "github.com/tandem-k8s/tandem/test/functions"
)

// TestBridgesAreNoNICs: no command and no ResourceSlice has functions that manage NVSwitches as NICs.
func TestBridgesAreNoNICs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		command []string
		nic     string // pattern of one of the functions as a NIC
	}{
		"plan":           {[]string{"plan", "--gpus=1", "--vfs=1"}, `0000:73:00\.\d`},
		"topo":           {[]string{"topo"}, `(?m)^NIC\d.* 0000:73:00\.\d`},
		"ResourceSlices": {[]string{"topo", "--output=resourceslices"}, `0000:73:00\.\d`},
	} {
		has := func(bridges ...string) bool {
			_, shown, _ := run(append(c.command, "--sysfs-root="+sysfstest.ConnectX7(bridges...).Folder(t))...)
			return regexp.MustCompile(c.nic).MatchString(shown)
		}
		t.Run(name+" of NICs", func(t *testing.T) {
			t.Parallel()
			if !has() {
				t.Error("no NIC is shown")
			}
		})
		t.Run(name+" of bridges", func(t *testing.T) {
			t.Parallel()
			if has(sysfstest.Bridges...) {
				t.Error("a bridge is shown as NIC")
			}
		})
	}
}
