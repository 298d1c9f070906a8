// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/test/disk"
)

// crashed is a run folder whose servers write with faults.
type crashed struct {
	t    *testing.T
	dir  string
	disk *disk.Disk
	boot string
	log  bytes.Buffer
}

func newCrashed(t *testing.T, d *disk.Disk) *crashed {
	c := &crashed{t: t, dir: t.TempDir(), disk: d, boot: "first boot"}
	d.Name(c.dir, StateFile)
	return c
}

// open opens the folder for a server.
func (c *crashed) open() (*store[example], error) {
	c.log.Reset()
	disk := c.disk.Disk()
	disk.Boot = c.boot
	return openStore[example](disk, c.dir, slog.New(slog.NewTextHandler(&c.log, nil)))
}

// start starts a server.
func (c *crashed) start() *store[example] {
	c.t.Helper()
	s, err := c.open()
	if err != nil {
		c.t.Fatal(err)
	}
	return s
}

// heals checks that a server writes a state that the next server loads.
func (c *crashed) heals(s *store[example]) {
	c.t.Helper()
	healthy := example{[]string{"healthy"}}
	s.write(healthy)
	if got, ok := c.start().load(); !ok || !slices.Equal(got.Pods, healthy.Pods) || c.log.Len() > 0 {
		c.t.Errorf("after the next write: %v, %v, log %q", got, ok, c.log.String())
	}
}

// Whichever step of a write fails, or ends the server: the next server has the old or the new state, with a
// success the new state. After a power failure the next server has none, because the boot is another; a
// damaged file is set aside.
func TestEveryStepOfAWrite(t *testing.T) {
	t.Parallel()
	disk.Each(t, func(t *testing.T, fault *disk.Case) {
		c := newCrashed(t, fault.Disk)
		s := c.start()
		before, after := example{[]string{"before"}}, example{[]string{"before", "after"}}
		s.write(before)
		struck := fault.During(t, func() { s.write(after) })
		if fault.Power {
			c.boot = "second boot"
		}
		isNew := struck == disk.Nothing || struck == disk.DiesAfter && strings.Contains(c.disk.Story()[0], "rename")
		next := c.start()
		got, ok := next.load()
		switch {
		case fault.Power && ok:
			t.Errorf("the state of another boot was loaded: %v", got)
		case fault.Power:
			c.warnsOnceOfDamage()
		case !ok || isNew && !slices.Equal(got.Pods, after.Pods) ||
			!isNew && !slices.Equal(got.Pods, before.Pods) && !slices.Equal(got.Pods, after.Pods):
			t.Errorf("loaded %v, %v; log %q", got, ok, c.log.String())
		}
		c.heals(next)
		c.tidy()
	})
}

// warnsOnceOfDamage checks the message about a file that no server loads.
func (c *crashed) warnsOnceOfDamage() {
	c.t.Helper()
	log := c.log.String()
	_, err := os.Lstat(filepath.Join(c.dir, badStateFile))
	setAside := strings.Contains(log, "renamed an unusable saved state")
	if strings.Count(log, "\n") > 1 || setAside != (err == nil) {
		c.t.Errorf("log %q, file set aside: %v", log, err)
	}
	if err := os.RemoveAll(filepath.Join(c.dir, badStateFile)); err != nil {
		c.t.Fatal(err)
	}
}

// tidy checks that a later server removes the temporary files of killed servers.
func (c *crashed) tidy() {
	c.t.Helper()
	disk.Age(c.t, c.dir)
	c.start()
	if left := disk.Leftovers(c.dir); len(left) > 0 {
		c.t.Errorf("left: %v", left)
	}
}
