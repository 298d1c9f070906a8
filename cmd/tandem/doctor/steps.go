// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/settings"
)

// staged is the name of Tandem's file before it is in place; the kubelet reads names in .conf alone.
const staged = DropIn + ".new"

// replace puts content in the place of Tandem's file, or removes it where that is nil. Whenever it is
// interrupted the kubelet starts with the files as they are, and the next run does the rest:
//   - the new file is on the disk before anything changes, so that a full disk or one that cannot be written
//     is found now;
//   - a state that is of other settings goes before they come: a kubelet without it makes it anew, one with
//     it does not start;
//   - [fixer.finish] looks again, as the kubelet that still runs may have written it.
func (x fixer) replace(after facts, content []byte) (err error) {
	folder, err := x.open(after.at.Dir)
	if err != nil {
		return err
	}
	defer folder.Close()
	before, err := folder.Read(DropIn)
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		return err
	}
	if !missing && !bytes.HasPrefix(before, []byte(madeBy)) {
		return fmt.Errorf("%s is not Tandem's: its first line is another", after.ownFile())
	}
	if err := stage(folder, content); err != nil {
		return fmt.Errorf("write %s: %w", after.ownFile(), err)
	}
	if missing && content == nil {
		return fmt.Errorf("remove %s: %w", after.ownFile(), fs.ErrNotExist)
	}
	if err := x.removeStale(after); err != nil {
		return errors.Join(err, ignoreMissing(folder.Remove(staged)))
	}
	if content == nil {
		err = folder.Remove(DropIn)
	} else {
		err = folder.Rename(staged, DropIn)
	}
	if err != nil {
		return fmt.Errorf("change %s: %w", after.ownFile(), err)
	}
	return nil
}

// stage writes the file under another name, which may be left over from a run that was interrupted.
func stage(folder settings.Folder, content []byte) error {
	err := ignoreMissing(folder.Remove(staged))
	if err != nil || content == nil {
		return err
	}
	if err := folder.Create(staged, content); err != nil {
		return errors.Join(err, ignoreMissing(folder.Remove(staged)))
	}
	return nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// removeStale removes the states with which a kubelet of these settings would not start.
func (x fixer) removeStale(f facts) error {
	stale, closed := f.staleStates(x.node.KubeletDir)
	for path, err := range closed {
		return fmt.Errorf("read %s: %w", path, err)
	}
	if len(stale) == 0 {
		return nil
	}
	folder, err := x.open(x.node.KubeletDir)
	if err != nil {
		return err
	}
	defer folder.Close()
	for _, s := range stale {
		if err := folder.Remove(filepath.Base(s.path)); ignoreMissing(err) != nil {
			return fmt.Errorf("remove stale state: %w", err)
		}
		x.printf("Removed %s, which is of other settings: the kubelet makes it anew.\n", s.path)
	}
	return nil
}

// finish does what is left once the files are as they should be, by this run or by an earlier one that was
// interrupted, and says whether the kubelet has to be started anew.
func (x fixer) finish(f facts, apply, changed bool) error {
	stale := x.stalePaths(f)
	if !apply {
		if len(stale)+len(f.changed) > 0 {
			x.printf("The kubelet has not taken its configuration over yet. Drain the node, then: %s\n",
				restarted(stale...))
		}
		return nil
	}
	if err := x.removeStale(f); err != nil {
		return err
	}
	if changed || len(stale)+len(f.changed) > 0 {
		x.printf("Now: systemctl restart kubelet\n")
	}
	return nil
}
