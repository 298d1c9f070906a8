package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tandem-k8s/tandem/doctor"
)

// backup is what a file is called that was there before.
const backup = ".before-tandem"

// fixer patches the kubelet's configuration.
type fixer struct{ fix, apply, rollback bool }

func (f *fixer) register(flags *pflag.FlagSet) {
	flags.BoolVar(&f.fix, "fix-kubelet", false, "show how the kubelet's configuration has to change")
	flags.BoolVar(&f.apply, "apply", false, "with --fix-kubelet: change it, after a copy to FILE"+backup)
	flags.BoolVar(&f.rollback, "rollback-kubelet", false, "put that copy back")
}

// run does what the flags say; false where they say nothing.
func (f *fixer) run(cmd *cobra.Command, x *examiner) (done bool, err error) {
	switch {
	case f.fix && f.rollback:
		return true, usage("--fix-kubelet and --rollback-kubelet exclude each other")
	case f.apply && !f.fix:
		return true, usage("--apply belongs to --fix-kubelet")
	case f.rollback:
		return true, rollBack(cmd.OutOrStdout(), x)
	case f.fix:
		return true, f.patch(cmd.OutOrStdout(), x)
	default:
		return false, nil
	}
}

func (f *fixer) patch(out io.Writer, x *examiner) error {
	if err := x.read(); err != nil {
		return err
	}
	settings, err := doctor.Settings(x.node)
	if err != nil {
		return fmt.Errorf("decide what the kubelet's configuration lacks: %w", err)
	}
	file, _ := x.node.Files()
	before, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read the kubelet's configuration: %w", err)
	}
	after, err := doctor.Patch(before, settings)
	if err != nil {
		return fmt.Errorf("patch %s: %w", file, err)
	}
	if bytes.Equal(before, after) {
		fmt.Fprintf(out, "%s needs no change.\n", file)
		return nil
	}
	fmt.Fprintf(out, "--- %s\n+++ %s, patched\n%s", file, file, doctor.Diff(before, after))
	if !f.apply {
		fmt.Fprintf(out, "\nNothing was changed. Drain the node, then: tandem doctor --fix-kubelet --apply && systemctl restart kubelet\n")
		return nil
	}
	if err := keep(file, before); err != nil {
		return err
	}
	if err := replace(file, after); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nChanged. What was there before is in %s%s.\n", file, backup)
	return finish(out, x)
}

// keep copies a file, unless an earlier copy is there: that is of what its owner wrote.
func keep(file string, content []byte) error {
	if _, err := os.Lstat(file + backup); err == nil {
		return nil
	}
	info, err := os.Stat(file)
	if err != nil {
		return fmt.Errorf("keep a copy: %w", err)
	}
	return writeDurably(file+backup, content, info.Mode().Perm())
}

// replace gives a file other content, with the mode that it had. A link is followed: what it points at is replaced.
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

// writeDurably writes all of a file or nothing, and waits for the disk: the next thing that happens to this node may be its restart. The files
// of coordination.ReplaceFile end with the boot and are written without.
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

// finish removes the state that the kubelet would refuse to start with, and says what is left to do.
func finish(out io.Writer, x *examiner) error {
	for _, state := range doctor.StaleState(x.node) {
		if err := os.Remove(state); err != nil {
			return fmt.Errorf("remove stale state: %w", err)
		}
		fmt.Fprintf(out, "Removed %s, which is of another policy: the kubelet makes it anew.\n", state)
	}
	fmt.Fprintln(out, "Now: systemctl restart kubelet")
	return nil
}

func rollBack(out io.Writer, x *examiner) error {
	file, _ := x.node.Files()
	before, err := os.ReadFile(file + backup)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("roll back: there is no %s%s: nothing was changed by tandem doctor", file, backup)
	}
	if err != nil {
		return fmt.Errorf("roll back: %w", err)
	}
	if err := replace(file, before); err != nil {
		return err
	}
	if err := os.Remove(file + backup); err != nil {
		return fmt.Errorf("roll back: %w", err)
	}
	fmt.Fprintf(out, "%s is what it was.\n", file)
	if err := x.read(); err != nil {
		return err
	}
	return finish(out, x)
}
