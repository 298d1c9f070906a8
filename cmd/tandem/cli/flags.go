// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// RegisterTopologyFile adds the flag of a topology file.
func RegisterTopologyFile(flags *pflag.FlagSet, file *string) {
	flags.StringVar(file, "topology-file", "",
		"NCCL topology file (NCCL_TOPO_FILE) with the PCIe switches, for a guest with a flat PCI tree in sysfs")
}

// RegisterRunDir adds the flag of the run folder.
func RegisterRunDir(flags *pflag.FlagSet, dir *string) {
	flags.StringVar(dir, "run-dir", "",
		"--run-dir of the plugins (default the folder in which a plugin answers: "+
			"device-plugins/tandem in the kubelet's folder, or /run/tandem)")
}

// RefuseFlags refuses the flags that a flag excludes: all but some.
func RefuseFlags(cmd *cobra.Command, given string, but ...string) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if err == nil && !slices.Contains(but, f.Name) {
			err = NewUsageError("--%s and --%s exclude each other", given, f.Name)
		}
	})
	return err
}

// WriteNew writes to the named file, which has to be new unless force is set, or to stdout.
func WriteNew(content io.WriterTo, name string, force bool, stdout io.Writer) error {
	if name == "" {
		_, err := content.WriteTo(stdout)
		return err
	}
	flags := os.O_WRONLY | os.O_CREATE | os.O_EXCL
	if force {
		flags = os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	}
	var text bytes.Buffer
	if _, err := content.WriteTo(&text); err != nil {
		return err
	}
	file, err := os.OpenFile(name, flags, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("write %s: the file exists; --force overwrites the file", name)
	}
	if err != nil {
		return fmt.Errorf("write file: %w", err)
	}
	_, err = file.Write(text.Bytes())
	if err = errors.Join(err, file.Close()); err != nil && !force {
		err = errors.Join(err, os.Remove(name)) // the next run writes a new one
	}
	return err
}
