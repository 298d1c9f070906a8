// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"log/slog"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/test/disk"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// handoutPair has the two plugins' handouts in one run folder.
type handoutPair struct{ gpus, vfs *handouts }

func newHandoutPair(dir string, d *disk.Disk) handoutPair {
	log := slog.New(slog.DiscardHandler)
	of := func(kind device.Kind) *handouts {
		return newHandouts(log, d.Disk(), dir, kind, newHandoutReader(log, dir, kind.Other()))
	}
	return handoutPair{of(device.GPU), of(device.VF)}
}

// Whichever step of a handout fails, or ends the plugin: the other plugin reads the last handout or the one
// before, and after a power failure possibly none.
func TestEveryStepOfAHandout(t *testing.T) {
	t.Parallel()
	disk.Each(t, func(t *testing.T, fault *disk.Case) {
		fault.Quiet = true
		dir := t.TempDir()
		fault.Name(dir, "handout")
		p := newHandoutPair(dir, fault.Disk)
		if err := p.gpus.record([]placement.Device{{ID: "before"}}); err != nil {
			t.Fatal(err)
		}
		var err error
		struck := fault.During(t, func() { err = p.gpus.record([]placement.Device{{ID: "after"}}) })
		if (err == nil) != (struck == disk.Nothing) {
			t.Errorf("error %v after %v", err, struck)
		}
		got := newHandoutPair(dir, fault.Disk).vfs.likelyCounterparts()
		isOf := func(id string) bool { return len(got) == 1 && got[0].ID == id }
		switch {
		case fault.Power && got == nil:
		case err == nil && !fault.Power && !isOf("after"), !isOf("before") && !isOf("after"):
			t.Errorf("the other plugin reads %v", got)
		}
		next := newHandoutPair(dir, fault.Disk)
		if err := next.gpus.record([]placement.Device{{ID: "next"}}); err != nil {
			t.Error(err)
		}
		if got := next.vfs.likelyCounterparts(); !slices.Equal(got, []placement.Device{{ID: "next"}}) {
			t.Errorf("after the next handout: %v", got)
		}
	})
}

// A disk that hangs delays no allocation beyond the limit, and later the last handout is on the disk.
func TestHandoutOnASlowDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, slow := t.TempDir(), disk.New(1)
		slow.Delay = time.Minute
		p := newHandoutPair(dir, slow)
		slow.At(2, disk.Slow)
		began := time.Now()
		err := p.gpus.record([]placement.Device{{ID: "first"}})
		if took := time.Since(began); err == nil || took > handoutLimit {
			t.Errorf("%v after %s", err, took)
		}
		<-time.After(2 * slow.Delay)
		if err := p.gpus.record([]placement.Device{{ID: "second"}}); err != nil {
			t.Error(err)
		}
		if got := p.vfs.likelyCounterparts(); len(got) != 1 || got[0].ID != "second" {
			t.Errorf("the other plugin reads %v", got)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
			t.Errorf("files %v, %v", entries, err)
		}
	})
}
