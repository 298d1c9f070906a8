// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"syscall"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
)

// Files in the driver's directory.
const (
	FileName = coordination.ClaimsFile
	lockName = coordination.ClaimsLock
)

func sortedByName(claims []Claim) []Claim {
	return slices.SortedFunc(slices.Values(claims), func(a, b Claim) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
}

// ErrBusy means that another Preparer is using the directory.
var ErrBusy = errors.New("claims are being prepared or unprepared")

// lockFolder waits until no other Preparer uses the directory. The kernel releases the lock when the process
// ends.
func lockFolder(dir string) (release func(), err error) { return lockBy(dir, syscall.LOCK_EX) }

// tryLock is lockFolder without waiting: it returns ErrBusy instead.
func tryLock(dir string) (release func(), err error) {
	return lockBy(dir, syscall.LOCK_EX|syscall.LOCK_NB)
}

func lockBy(dir string, how int) (release func(), err error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("make the driver's folder: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock of claims: %w", err)
	}
	err = system.Flock(file, how)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = ErrBusy
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock claims: %w", err), file.Close())
	}
	return func() { file.Close() }, nil
}

func (p *Preparer) claimsPath() string { return filepath.Join(p.Dir, FileName) }

// loadClaims returns the content of the checkpoint, nil if the file does not exist, and the prepared claims,
// by namespace and name. A checkpoint that cannot be read, or that is missing although claims have CDI specs,
// is not an empty checkpoint: any device can belong to a pod with a claim.
func (p *Preparer) loadClaims() (content []byte, known []Claim, err error) {
	content, err = os.ReadFile(p.claimsPath())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		with, err := p.listSpecs()
		if err == nil && len(with) > 0 {
			err = fmt.Errorf("read %s: %w: there is no file, and %d claims have CDI specs", p.claimsPath(),
				coordination.ErrUnknownClaims, len(with))
		}
		return nil, nil, withRemedy(err)
	case err != nil:
		return nil, nil, fmt.Errorf("read prepared claims: %w", err)
	}
	known, err = coordination.DecodeClaims[Claim](p.claimsPath(), content)
	return content, known, withRemedy(err)
}

// withRemedy returns the error of an unknown checkpoint with its remedy; other errors remain as they are.
func withRemedy(err error) error {
	if !errors.Is(err, coordination.ErrUnknownClaims) {
		return err
	}
	return fmt.Errorf("%w; nothing is prepared: start the version of the driver that wrote the file, or end "+
		"the pods with claims of driver %s on this node, then delete the file", err, pool.Driver)
}

// readClaims returns the prepared claims, from a durable checkpoint, under the lock. It restores a file that
// was lost since the last call. A checkpoint that cannot be read stays as it is.
func (p *Preparer) readClaims() ([]Claim, error) {
	content, known, err := p.loadClaims()
	if content == nil && (err == nil || errors.Is(err, coordination.ErrUnknownClaims)) {
		return p.restoreClaims(err)
	}
	if err == nil {
		err = p.keepDurable(content)
	}
	if err != nil {
		return nil, err
	}
	return known, nil
}

// restoreClaims writes the last checkpoint of the process in place of a missing file, unless another process
// has prepared a claim since: then it returns the given error, the cause of unknown claims. Before the first
// claim the file has none: wherever a driver was, a missing file is a lost one.
func (p *Preparer) restoreClaims(unknown error) ([]Claim, error) {
	durable := p.durable.Load()
	switch {
	case unknown != nil && durable == nil:
		return nil, unknown
	case durable == nil:
		return nil, p.saveClaims(nil)
	}
	known, err := coordination.DecodeClaims[Claim](p.claimsPath(), *durable)
	with, unlisted := p.listSpecs()
	isOther := func(uid types.UID) bool { return !(Claim{UID: uid}).isIn(known) }
	if err = errors.Join(err, unlisted); err != nil || slices.ContainsFunc(with, isOther) {
		return nil, cmp.Or(unknown, err)
	}
	p.Log.Error("the record of claims is gone; writing it again", "file", p.claimsPath(), "claims", len(known))
	return known, p.saveClaims(known)
}

func (p *Preparer) saveClaims(claims []Claim) error {
	content, err := coordination.EncodeClaims(sortedByName(claims))
	if err != nil {
		return err
	}
	if err := p.Host.Disk.ReplaceDurably(p.claimsPath(), content, 0o600); err != nil {
		return err
	}
	p.durable.Store(&content)
	return nil
}

// keepDurable makes the content of the checkpoint durable, after a failed save and after a process that was
// killed: answers to the kubelet refer to the content, even if nothing is written.
func (p *Preparer) keepDurable(content []byte) error {
	if durable := p.durable.Load(); durable != nil && bytes.Equal(content, *durable) {
		return nil
	}
	if err := p.Host.Disk.Keep(p.claimsPath()); err != nil {
		return err
	}
	p.durable.Store(&content)
	return nil
}

// Restore restores the files of the prepared claims, which do not persist over boots, records the present IDs
// of their devices, and removes temporary files and the files of all other claims, which a killed process may
// leave. After an error of the checkpoint it removes temporary files only. Must be called at the start,
// before any other call.
func (p *Preparer) Restore(ctx context.Context, state State) error {
	return p.restoreBy(ctx, state, lockFolder)
}

// Repair is Restore at any other time: the machine may have missing devices again, and files may be lost. It
// does not wait for the lock and returns ErrBusy instead.
func (p *Preparer) Repair(ctx context.Context, state State) error {
	return p.restoreBy(ctx, state, tryLock)
}

func (p *Preparer) restoreBy(
	ctx context.Context, state State, lock func(dir string) (release func(), err error),
) error {
	release, err := lock(p.Dir)
	if err != nil {
		return err
	}
	defer release()
	return errors.Join(p.restoreFiles(ctx, state), p.tidyTemporaries())
}

func (p *Preparer) restoreFiles(ctx context.Context, state State) error {
	recorded, err := p.readClaims()
	if err != nil {
		return err
	}
	known := Present(state.Machine, recorded)
	m := p.newComposition(newNodeIndex(state), known)
	var problems []error
	if !reflect.DeepEqual(known, recorded) {
		problems = append(problems, p.saveClaims(known))
	}
	for _, c := range known {
		if ctx.Err() != nil {
			return fmt.Errorf("restore files of prepared claims: %w", ctx.Err())
		}
		problems = append(problems, m.restoreClaim(c))
	}
	return errors.Join(append(problems, p.tidySpecs(known), p.tidyPairs(known))...)
}

// tidyTemporaries removes temporary files. Other Preparers wait for the lock; device plugins do not, so only
// abandoned files are removed from their directories while they may write.
func (p *Preparer) tidyTemporaries() error {
	disk := p.Host.Disk
	tidy := disk.RemoveAbandoned
	if p.Alone {
		tidy = disk.RemoveTemporaries
	}
	return errors.Join(disk.RemoveTemporaries(p.Dir), tidy(p.CDIDir), tidy(p.Host.DevinfoDir))
}
