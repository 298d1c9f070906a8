// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"errors"
	"time"

	"github.com/tandem-k8s/tandem/dra/claims"
)

// filesPause is the interval between checks of the files of prepared claims.
const filesPause = 10 * time.Second

// filesMissing is the consequence of an error while restoring files.
const filesMissing = "files of prepared claims may be missing, or left behind"

// watchFiles restores the files of prepared claims until ctx is done: after a change of the machine's
// devices, such as VFs that appear late after a boot, and after the loss of a file.
func (d *Driver) watchFiles(ctx context.Context) {
	if d.Drain { // devices are not scanned
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
