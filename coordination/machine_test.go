// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
)

// The tree is read again for what another process announces, and for a healthy device that it lacks; not for
// what was announced by a plugin that has read it.
func TestTreeIsReadOncePerChange(t *testing.T) {
	root := filepath.Join(t.TempDir(), "sys")
	if err := os.CopyFS(root, machines.Sys(t, "oci-mi300x-derived", 0)); err != nil {
		t.Fatal(err)
	}
	announce := func(id string, own, healthy bool) device.Announcement {
		address, err := topology.ParseAddress(id)
		if err != nil {
			t.Fatal(err)
		}
		return device.Announcement{Own: own, Devices: []device.Device{{ID: id, Address: address, Healthy: healthy}}}
	}
	m := &machine{source: newTreeReader(root)}
	if _, err := m.read(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name         string
		announcement device.Announcement
		read         bool
	}{
		{"its own plugin's, known", announce("0000:0c:00.0", true, true), false},
		{"its own plugin's, gone", announce("0000:0c:00.7", true, false), false},
		{"its own plugin's, new", announce("0000:0c:00.1", true, true), true},
		{"another process's", announce("0000:0c:00.0", false, true), true},
	} {
		before := m.Newest()
		err := m.Refresh(c.announcement)
		if read := m.Newest() != before; err != nil || read != c.read {
			t.Errorf("%s: read %t, want %t; %v", c.name, read, c.read, err)
		}
	}
}
