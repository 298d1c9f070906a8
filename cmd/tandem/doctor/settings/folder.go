// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Folder is a folder of the node that only root can change. The methods take names, not paths, do not follow
// links, and return after the change is on disk.
type Folder interface {
	Read(name string) ([]byte, error)
	Create(name string, content []byte) error // creates a new file
	Rename(from, to string) error
	Remove(name string) error
	Close() error
}

// heldFolder is a folder with an open descriptor.
type heldFolder struct {
	path string
	root *os.Root
	self *os.File
}

// OpenFolder opens and locks a folder to change its files. It rejects a path that users other than root and
// the current user can redirect.
func OpenFolder(path string) (Folder, error) {
	if err := ownPath(path); err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	self, err := root.Open(".")
	if err == nil {
		err = syscall.Flock(int(self.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	if err != nil {
		root.Close()
		return nil, fmt.Errorf("lock %s, possibly in use by another tandem doctor: %w", path, err)
	}
	return &heldFolder{path, root, self}, nil
}

// ownPath checks each folder from the top down: if only root can write to a folder, no other user can replace
// the folder below.
func ownPath(path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	at, look := "/", os.Stat
	if before, after, ok := strings.Cut(path, "/root/"); ok && filepath.Dir(before) == "/proc" {
		at, path = before+"/root", after // a link of the kernel's, see [Process.Root]
	}
	for _, name := range append([]string{""}, strings.Split(strings.Trim(path, "/"), "/")...) {
		at = filepath.Join(at, name)
		info, err := look(at)
		if err == nil {
			err = ownFolder(info)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
		look = os.Lstat
	}
	return nil
}

func ownFolder(info fs.FileInfo) error {
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return errors.New("its owner is unknown")
	}
	othersWrite := info.Mode().Perm()&0o002 != 0 || info.Mode().Perm()&0o020 != 0 && owner.Gid != 0
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		return errors.New("the folder is a symbolic link: name its target instead")
	case !info.IsDir():
		return errors.New("it is no folder")
	case owner.Uid != 0 && int(owner.Uid) != os.Geteuid():
		return fmt.Errorf("the file belongs to user %d, who can change it", owner.Uid)
	case othersWrite && info.Mode()&fs.ModeSticky == 0:
		return errors.New("users other than root can write to the file")
	}
	return nil
}

// Read reads a file. A link is an error.
func (f *heldFolder) Read(name string) ([]byte, error) {
	info, err := f.root.Lstat(name)
	if err != nil {
		return nil, err
	}
	const most = 1 << 20
	if !info.Mode().IsRegular() || info.Size() > most {
		return nil, fmt.Errorf("read %s: it is a link, or no file of a reasonable size",
			filepath.Join(f.path, name))
	}
	return f.root.ReadFile(name) // the lock excludes concurrent changes
}

// ownMode is the mode of Tandem's file, which contains no secret.
const ownMode = 0o644

// Create creates a file.
func (f *heldFolder) Create(name string, content []byte) error {
	file, err := f.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, ownMode)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	return errors.Join(err, file.Chmod(ownMode), file.Sync(), file.Close())
}

// Rename renames a file, and replaces an existing file.
func (f *heldFolder) Rename(from, to string) error {
	if err := f.root.Rename(from, to); err != nil {
		return err
	}
	return f.self.Sync()
}

// Remove removes a file. A missing file is an error.
func (f *heldFolder) Remove(name string) error {
	if err := f.root.Remove(name); err != nil {
		return err
	}
	return f.self.Sync()
}

// Close closes and unlocks the folder.
func (f *heldFolder) Close() error { return errors.Join(f.self.Close(), f.root.Close()) }
