package dra

import (
	"context"
	"errors"
	"time"

	"github.com/tandem-k8s/tandem/dra/claims"
)

// filesPause is how often it is looked whether the files of prepared claims are there.
const filesPause = 10 * time.Second

// filesMissing is what an error of restoring files leads to.
const filesMissing = "files of prepared claims may be missing, or left behind"

// watchFiles restores the files of prepared claims until ctx is done: when the machine has something else
// than before, as VFs that come late after a boot, and when a file is gone.
func (d *Driver) watchFiles(ctx context.Context) {
	if d.Drain { // it does not know the devices
		return
	}
	tick := time.NewTicker(filesPause)
	defer tick.Stop()
	v, changed := d.newest.watch()
	for looks := v.looks; ; {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-tick.C:
		}
		v, changed = d.newest.watch()
		var err error
		if v.looks != looks || !d.preparer.Complete() {
			if err = d.preparer.Repair(ctx, v.State); errors.Is(err, claims.ErrBusy) {
				continue
			}
			looks = v.looks
		}
		if err != nil && ctx.Err() == nil {
			d.complain(filesMissing, err)
		}
		d.unrestored.set(err)
	}
}
