// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
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

// storeHistory is a run folder with the states that its file may have.
type storeHistory struct {
	*crashed
	server   *store[example]
	state    int          // number of the last state
	possible map[int]bool // states that the next server may load; 0 for none
}

// Servers write, are killed at any step, start again and lose power: the next server loads the last state
// that was written without an error, or a later one; after a power failure none.
func TestAnyOrder(t *testing.T) {
	t.Parallel()
	disk.Simulate(t, disk.Points(StateFile, disk.Write), func(t *testing.T, d *disk.Disk, random *rand.Rand) {
		h := &storeHistory{crashed: newCrashed(t, d), possible: map[int]bool{0: true}}
		h.restart(false)
		for range 100 {
			switch random.IntN(8) {
			case 0:
				h.restart(true)
			case 1:
				h.powerFails()
			default:
				h.save(true)
			}
			if t.Failed() {
				return
			}
		}
		h.save(false)
		h.restart(false)
	})
}

// restart starts servers until one of them lives, and checks the state that each of them loads.
func (h *storeHistory) restart(faults bool) {
	h.t.Helper()
	h.server = nil
	for h.server == nil {
		struck := h.during(faults, func() {
			s, err := h.open()
			if err != nil {
				return // the daemon tries again
			}
			h.check(s.load())
			h.server = s
		})
		if struck.Kills() {
			h.server = nil
		}
	}
}

// during calls a function, with or without faults.
func (h *storeHistory) during(faults bool, do func()) disk.Fault {
	if faults {
		return h.disk.Randomly(do)
	}
	do()
	return disk.Nothing
}

// check checks a loaded state, which then is the only possible one.
func (h *storeHistory) check(loaded example, ok bool) {
	h.t.Helper()
	state := 0
	if ok {
		if _, err := fmt.Sscan(loaded.Pods[0], &state); err != nil || len(loaded.Pods) != state%5+1 {
			h.t.Errorf("loaded the partial state %v", loaded)
		}
	}
	if !h.possible[state] {
		h.t.Errorf("loaded state %d, want one of %v; log %q", state, h.possible, h.log.String())
	}
	if state > 0 {
		h.possible = map[int]bool{state: true}
	}
}

// save writes the next state.
func (h *storeHistory) save(faults bool) {
	h.t.Helper()
	h.state++
	value := example{slices.Repeat([]string{fmt.Sprint(h.state)}, h.state%5+1)}
	struck := h.during(faults, func() { h.server.write(value) })
	h.possible[h.state] = true
	switch {
	case struck.Kills():
		h.restart(faults)
	case !h.server.failing:
		h.possible = map[int]bool{h.state: true}
	}
}

func (h *storeHistory) powerFails() {
	h.t.Helper()
	if err := h.disk.PowerFailure(); err != nil {
		h.t.Fatal(err)
	}
	h.boot, h.possible = fmt.Sprint("boot after state ", h.state), map[int]bool{0: true}
	h.restart(true)
}
