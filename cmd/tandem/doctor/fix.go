package doctor

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/config"
)

// Backup is what a file is called that was there before.
const Backup = ".before-tandem"

// ownMode is the mode of the file of our own; it holds no secret.
const ownMode = 0o644

// Fix shows how the kubelet's configuration has to change and, if it is to be applied, changes it, after a
// copy to a file with [Backup] behind its name.
func Fix(out io.Writer, n Node, apply bool) error {
	settings, err := Settings(n)
	if err != nil {
		return fmt.Errorf("decide what the kubelet's configuration lacks: %w", err)
	}
	file, own := n.Target()
	if len(settings) == 0 {
		fmt.Fprintf(out, "%s needs no change.\n", file)
		return nil
	}
	before, err := os.ReadFile(file)
	base := before
	switch {
	case own && errors.Is(err, fs.ErrNotExist):
		base = []byte(NewDropIn)
	case err != nil:
		return fmt.Errorf("read the kubelet's configuration: %w", err)
	}
	after, err := config.Patch(base, settings)
	if err != nil {
		return fmt.Errorf("patch %s: %w", file, err)
	}
	fmt.Fprintf(out, "--- %s\n+++ %s, patched\n%s", file, file, config.Diff(before, after))
	if !apply {
		fmt.Fprintf(out, "\nNothing was changed. Drain the node, then: tandem doctor --fix-kubelet --apply && "+
			"systemctl restart kubelet\n")
		return nil
	}
	if err := change(out, n, before, after); err != nil {
		return err
	}
	return RemoveStale(out, n)
}

// change writes the file that settings go into.
func change(out io.Writer, n Node, before, after []byte) error {
	file, own := n.Target()
	config, dir := n.Files()
	wayBack := "tandem doctor --rollback-kubelet --kubelet-config=" + config
	if own {
		if err := writeDurably(file, after, ownMode); err != nil {
			return err
		}
		fmt.Fprintf(out, "\nChanged: %s is our own.\nThe way back: %s --kubelet-config-dir=%s\n", file, wayBack,
			dir)
		return nil
	}
	if err := keep(file, before); err != nil {
		return err
	}
	if err := replace(file, after); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nChanged. What was there before is in %s%s.\nThe way back: %s\n", file, Backup, wayBack)
	return nil
}

// keep copies a file, unless an earlier copy is there: that is of what its owner wrote.
func keep(file string, content []byte) error {
	if _, err := os.Lstat(file + Backup); err == nil {
		return nil
	}
	info, err := os.Stat(file)
	if err != nil {
		return fmt.Errorf("keep a copy: %w", err)
	}
	return writeDurably(file+Backup, content, info.Mode().Perm())
}

// replace gives a file other content, with the mode that it had. A link is followed: what it points at is
// replaced.
func replace(file string, content []byte) error {
	target, err := filepath.EvalSymlinks(file)
	if err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	info, err := os.Stat(target)
	if err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return writeDurably(target, content, info.Mode().Perm())
}

// writeDurably writes all of a file or nothing, and waits for the disk: the next thing that happens to this
// node may be its restart. The files of coordination.ReplaceFile end with the boot and are written without.
func writeDurably(file string, content []byte, mode fs.FileMode) error {
	temporary, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	defer os.RemoveAll(temporary.Name())
	_, err = temporary.Write(content)
	err = errors.Join(err, temporary.Chmod(mode), temporary.Sync(), temporary.Close())
	if err == nil {
		err = os.Rename(temporary.Name(), file)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return nil
}

// RemoveStale removes the state that the kubelet would refuse to start with, and says what is left to do.
func RemoveStale(out io.Writer, n Node) error {
	for _, state := range StaleState(n) {
		if err := os.Remove(state); err != nil {
			return fmt.Errorf("remove stale state: %w", err)
		}
		fmt.Fprintf(out, "Removed %s, which is of another policy: the kubelet makes it anew.\n", state)
	}
	fmt.Fprintln(out, "Now: systemctl restart kubelet")
	return nil
}

// RollBack removes the file of our own and puts the copy back, whichever there is.
func RollBack(out io.Writer, n Node) error {
	config, dir := n.Files()
	removed, err := removeOwn(out, dir)
	if err != nil {
		return err
	}
	restored, err := restore(out, config)
	if err != nil {
		return err
	}
	if !removed && !restored {
		return fmt.Errorf("roll back: nothing was changed by tandem doctor: there is no %s%s%s; "+
			"where the kubelet reads others: --kubelet-config, --kubelet-config-dir",
			config, Backup, orOwn(dir))
	}
	return nil
}

func orOwn(dir string) string {
	if dir == "" {
		return ""
	}
	return " and no " + filepath.Join(dir, DropIn)
}

// removeOwn removes the file of our own, where there is a folder of drop-ins and it is in it.
func removeOwn(out io.Writer, dir string) (removed bool, err error) {
	if dir == "" {
		return false, nil
	}
	file := filepath.Join(dir, DropIn)
	if err := os.Remove(file); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("roll back: %w", err)
	}
	fmt.Fprintf(out, "%s is gone.\n", file)
	return true, nil
}

// restore puts the copy of a file back, where there is one.
func restore(out io.Writer, file string) (restored bool, err error) {
	before, err := os.ReadFile(file + Backup)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("roll back: %w", err)
	}
	if err := replace(file, before); err != nil {
		return false, err
	}
	if err := os.Remove(file + Backup); err != nil {
		return false, fmt.Errorf("roll back: %w", err)
	}
	fmt.Fprintf(out, "%s is what it was.\n", file)
	return true, nil
}
