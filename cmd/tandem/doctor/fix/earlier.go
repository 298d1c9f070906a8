// SPDX-License-Identifier: Apache-2.0

package fix

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/managers"
	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/settings"
)

// earlierDropIn has the content of Tandem's file from before the last change, nothing if there was no file.
// It exists from a change until the kubelet is known to be well with the change, or the change is undone. The
// kubelet does not read the file, because the name ends in another way than .conf.
const earlierDropIn = DropIn + ".before"

// settled is the age at which a kubelet is well with the settings of its start: a kubelet that does not
// accept its settings ends within seconds.
const settled = time.Minute

// change replaces Tandem's file, and keeps the content from before.
func (x fixer) change(after managers.Facts, content []byte) error {
	if err := x.keep(after.At); err != nil {
		return err
	}
	err := x.replace(after, content)
	if _, changed := pending(after.At); err != nil && !changed {
		return errors.Join(err, x.forget(after.At.Dir))
	}
	return err
}

// keep writes the current content of Tandem's file into a file next to it. The file of an earlier change,
// with which the kubelet was not well yet, stays.
func (x fixer) keep(at settings.Files) error {
	folder, err := x.open(at.Dir)
	if err != nil {
		return err
	}
	defer folder.Close()
	before, err := current(folder, at)
	if err != nil {
		return err
	}
	if _, err := folder.Read(earlierDropIn); ignoreMissing(err) != nil || err == nil {
		return ignoreMissing(err)
	}
	err = stage(folder, earlierDropIn, append([]byte{}, before...))
	if err == nil {
		err = folder.Rename(earlierDropIn+staged, earlierDropIn)
	}
	if err != nil {
		return fmt.Errorf("keep %s: %w", ownFile(at), err)
	}
	return nil
}

// earlier returns the content from before the last change, nil for no file.
func (x fixer) earlier(dir string) ([]byte, error) {
	folder, err := x.open(dir)
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	content, err := folder.Read(earlierDropIn)
	if err != nil || len(content) == 0 {
		return nil, err
	}
	if !bytes.HasPrefix(content, []byte(madeBy)) {
		return nil, fmt.Errorf("%s was not written by Tandem: its first line differs",
			filepath.Join(dir, earlierDropIn))
	}
	return content, nil
}

// settle forgets the content from before the last change if the kubelet has run with the change for long
// enough.
func (x fixer) settle(p settings.Process, now managers.Facts) error {
	if p.Age <= settled || len(now.Changed) > 0 {
		return nil
	}
	if _, ok := pending(now.At); !ok {
		return nil
	}
	return x.forget(now.At.Dir)
}

// forget removes the content from before the last change: the kubelet is well with the change, or the change
// is undone.
func (x fixer) forget(dir string) error {
	folder, err := x.open(dir)
	if err != nil {
		return ignoreMissing(err)
	}
	defer folder.Close()
	for _, name := range []string{earlierDropIn + staged, earlierDropIn} {
		if err := ignoreMissing(folder.Remove(name)); err != nil {
			return fmt.Errorf("remove %s: %w", filepath.Join(dir, name), err)
		}
	}
	return nil
}

// pending returns the content from before the last change, and whether there is a change to undo.
func pending(at settings.Files) (before []byte, ok bool) {
	if at.Dir == "" {
		return nil, false
	}
	before, err := os.ReadFile(filepath.Join(at.Dir, earlierDropIn))
	now, _ := os.ReadFile(ownFile(at)) // nothing if there is no file
	return before, err == nil && !bytes.Equal(before, now)
}

// wayBack prints how to undo a change with which the kubelet is not known to be well, and the file to remove
// once the kubelet is well. deployments/kubelet/node.sh reads both lines.
func (x fixer) wayBack(at settings.Files) {
	before, ok := pending(at)
	if !ok {
		return
	}
	last := ""
	if len(before) > 0 {
		last = " --last"
	}
	x.printf("To undo the change: tandem doctor --rollback-kubelet%s%s\n", last, x.places(at))
	x.printf("Once the kubelet is well: rm %s\n", filepath.Join(at.Dir, earlierDropIn))
}
