// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"errors"
	"fmt"

	"github.com/tandem-k8s/tandem/coordination/system"
)

// Restore restores the files of the prepared claims, which do not persist over boots, and removes all other
// files of claims, which a killed process may leave. Must be called at the start, before any other call.
func (p *Preparer) Restore(ctx context.Context, state State) error { return p.repair(ctx, state, lock) }

// Repair is Restore at any other time: the machine may have missing devices again, and files may be lost. It
// does not wait for the lock and returns ErrBusy instead.
func (p *Preparer) Repair(ctx context.Context, state State) error {
	return p.repair(ctx, state, tryLock)
}

// repair restores the files of the prepared claims and removes temporary files and the files of all other
// claims, under the lock. After an error of the checkpoint it removes temporary files only.
func (p *Preparer) repair(
	ctx context.Context, state State, lock func(dir string) (release func(), err error),
) error {
	release, err := lock(p.Dir)
	if err != nil {
		return err
	}
	defer release()
	return errors.Join(p.repairClaims(ctx, state), p.tidyTemporaries())
}

func (p *Preparer) repairClaims(ctx context.Context, state State) error {
	known, err := p.store.read()
	if err != nil {
		return err
	}
	m := p.newComposition(newNodeIndex(state), known)
	var problems []error
	for _, c := range known {
		if ctx.Err() != nil {
			return fmt.Errorf("restore files of prepared claims: %w", ctx.Err())
		}
		problems = append(problems, m.restore(c))
	}
	return errors.Join(append(problems, p.files.tidySpecs(known), p.files.tidyPairs(known))...)
}

// tidyTemporaries removes temporary files. Other Preparers wait for the lock; device plugins do not, so only
// abandoned files are removed from their directories while they may write.
func (p *Preparer) tidyTemporaries() error {
	age := system.Abandoned
	if p.Alone {
		age = 0
	}
	disk := p.Host.Disk
	return errors.Join(disk.RemoveTemporaries(p.Dir, 0), disk.RemoveTemporaries(p.CDIDir, age),
		disk.RemoveTemporaries(p.Host.DevinfoDir, age))
}
