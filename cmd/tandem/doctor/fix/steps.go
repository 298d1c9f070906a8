// SPDX-License-Identifier: Apache-2.0

package fix

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/managers"
	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/settings"
)

// fixer changes files of a node's kubelet.
type fixer struct {
	out  io.Writer
	node managers.Kubelet
	open func(path string) (settings.Folder, error)
	root string // prefix of the kubelet's paths in another mount namespace; "" for none
}

// printf prints a text with the paths of the node.
func (x fixer) printf(format string, args ...any) {
	fmt.Fprint(x.out, settings.OnNode(x.root, fmt.Sprintf(format, args...)))
}

// replace puts content in the place of Tandem's file; nil removes the file. Whenever replace is interrupted,
// the kubelet starts with the files on the disk, and the next run does the rest:
//   - the new file is on the disk before anything changes, so that a full or read-only disk is found first;
//   - a state file of other settings goes before the settings come: a kubelet without a state file makes one,
//     and with a stale one does not start;
//   - [fixer.finish] looks again, because the running kubelet may have written a state file meanwhile.
func (x fixer) replace(after managers.Facts, content []byte) (err error) {
	folder, err := x.open(after.At.Dir)
	if err != nil {
		return err
	}
	defer folder.Close()
	before, err := current(folder, after.At)
	if err != nil {
		return err
	}
	if err := stage(folder, DropIn, content); err != nil {
		return fmt.Errorf("write %s: %w", ownFile(after.At), err)
	}
	if before == nil && content == nil {
		return fmt.Errorf("remove %s: %w", ownFile(after.At), fs.ErrNotExist)
	}
	if err := x.removeStale(after); err != nil {
		return errors.Join(err, ignoreMissing(folder.Remove(DropIn+staged)))
	}
	if content == nil {
		err = folder.Remove(DropIn)
	} else {
		err = folder.Rename(DropIn+staged, DropIn)
	}
	if err != nil {
		return fmt.Errorf("change %s: %w", ownFile(after.At), err)
	}
	return nil
}

// current returns the content of Tandem's file, nil for no file. The file of another owner is an error.
func current(folder settings.Folder, at settings.Files) ([]byte, error) {
	content, err := folder.Read(DropIn)
	if err != nil {
		return nil, ignoreMissing(err)
	}
	if !bytes.HasPrefix(content, []byte(madeBy)) {
		return nil, fmt.Errorf("%s was not written by Tandem: its first line differs", ownFile(at))
	}
	return content, nil
}

// staged is the end of a file's name before the rename into place: the kubelet reads names in .conf alone.
const staged = ".new"

// stage writes a file under another name, over the file of an interrupted run.
func stage(folder settings.Folder, name string, content []byte) error {
	err := ignoreMissing(folder.Remove(name + staged))
	if err != nil || content == nil {
		return err
	}
	if err := folder.Create(name+staged, content); err != nil {
		return errors.Join(err, ignoreMissing(folder.Remove(name+staged)))
	}
	return nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// removeStale removes the state files with which a kubelet of these settings would not start.
func (x fixer) removeStale(f managers.Facts) error {
	stale, closed := f.StaleStates(x.node.KubeletDir)
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
		if err := folder.Remove(filepath.Base(s.Path)); ignoreMissing(err) != nil {
			return fmt.Errorf("remove stale state: %w", err)
		}
		x.printf("Removed %s, which has other settings; the kubelet creates it again.\n", s.Path)
	}
	return nil
}

// finish removes stale state files once Tandem's file is in place or gone, by this run or by an interrupted
// run, and says whether the kubelet needs a restart.
func (x fixer) finish(f managers.Facts, apply, changed bool) error {
	stale := x.removals(f)
	if !apply {
		if len(stale)+len(f.Changed) > 0 {
			x.printf("The kubelet does not use its new configuration yet. Drain the node, then: %s\n",
				managers.Restarted(stale...))
		}
		return nil
	}
	if err := x.removeStale(f); err != nil {
		return err
	}
	if changed || len(stale)+len(f.Changed) > 0 {
		x.printf("Now: systemctl restart kubelet\n")
	}
	return nil
}

// removals returns the commands that remove stale state files.
func (x fixer) removals(f managers.Facts) (commands []string) {
	stale, _ := f.StaleStates(x.node.KubeletDir)
	for _, s := range stale {
		commands = append(commands, "rm "+s.Path)
	}
	return commands
}
