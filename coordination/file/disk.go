// SPDX-License-Identifier: Apache-2.0

package file

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// Disk changes files. The zero value changes the files of the machine; a test passes an Open whose folders
// fail at a step, or end the process there.
type Disk struct {
	Open func(dir string) (Folder, error) // nil: folders of the machine
	Boot string                           // identifies the boot in a test; "" for the running kernel's
}

// BootID identifies the boot. What a file on the disk tells of the machine or of running containers is valid
// for one boot.
func (d Disk) BootID() (string, error) {
	if d.Boot != "" {
		return d.Boot, nil
	}
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read the ID of the boot: %w", err)
	}
	return strings.TrimSpace(string(id)), nil
}

// Folder has the steps of changes in a folder: the same folder, even after another one has replaced it at its
// path. Names are those in the folder.
type Folder interface {
	Create(name string) (File, error) // of a name without a file
	Rename(from, to string) error
	Remove(name string) error
	Sync() error // the names in the folder survive a power failure
	Close() error
}

// File has the steps of writing a new file.
type File interface {
	io.WriteCloser
	Chmod(mode os.FileMode) error
	Sync() error // the content survives a power failure
}

// Folder opens a folder.
func (d Disk) Folder(dir string) (Folder, error) {
	if d.Open != nil {
		return d.Open(dir)
	}
	return OpenFolder(dir)
}

// OpenFolder opens a folder of the machine.
func OpenFolder(dir string) (Folder, error) {
	root, err := os.OpenRoot(dir)
	return folder{root}, err
}

// folder is a folder of the machine.
type folder struct{ *os.Root }

func (f folder) Create(name string) (File, error) {
	return f.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
}

func (f folder) Sync() error {
	dir, err := f.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
