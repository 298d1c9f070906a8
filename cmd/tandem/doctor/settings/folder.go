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
	"time"
)

// Folder is a folder of the node that root alone can change. Its methods take names, not paths, and follow no
// links; a change is on the disk when they return.
type Folder interface {
	Read(name string) ([]byte, error)
	Create(name string, content []byte) error // a file that is not there yet
	Rename(from, to string) error
	Remove(name string) error
	Close() error
}

// heldFolder is a folder by its descriptor.
type heldFolder struct {
	path string
	root *os.Root
	self *os.File
}

// OpenFolder opens a folder to change files in it, for this process alone. It refuses a path that others than
// root, or than who runs this, can make lead elsewhere.
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

// ownPath checks each folder from the top down: once one belongs to root and others cannot write to it,
// nobody else can put another in the place of the one below.
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
	return f.root.ReadFile(name) // in a folder that nobody else changes meanwhile
}

// ownMode is the mode of a file of Tandem's; it holds no secret.
const ownMode = 0o644

// Create makes a file.
func (f *heldFolder) Create(name string, content []byte) error {
	file, err := f.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, ownMode)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	return errors.Join(err, file.Chmod(ownMode), file.Sync(), file.Close())
}

// Rename puts a file in the place of another.
func (f *heldFolder) Rename(from, to string) error {
	if err := f.root.Rename(from, to); err != nil {
		return err
	}
	return f.self.Sync()
}

// Remove removes a file. One that is not there is an error.
func (f *heldFolder) Remove(name string) error {
	if err := f.root.Remove(name); err != nil {
		return err
	}
	return f.self.Sync()
}

// Close lets others change the folder.
func (f *heldFolder) Close() error { return errors.Join(f.self.Close(), f.root.Close()) }

// changeTime is when a file, its name or its rights changed last.
func changeTime(info fs.FileInfo) time.Time {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return info.ModTime()
	}
	return time.Unix(stat.Ctim.Unix())
}
