// SPDX-License-Identifier: Apache-2.0

// Package system has what the programs of a node share and decides nothing: files that are replaced as a
// whole, watched or of another program; calls that may hang or panic; the newest value of a state.
package system

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
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

// Replace replaces a file in one step, so that no reader sees a partial file. After a power failure the file
// may be empty.
func (d Disk) Replace(name string, content []byte, mode os.FileMode) error {
	return d.changeFile("replace", name, func(f Folder, name string) error {
		return ReplaceIn(f, name, content, mode)
	})
}

// ReplaceDurably is Replace with durability: after a successful return the file survives a power failure.
func (d Disk) ReplaceDurably(name string, content []byte, mode os.FileMode) error {
	return d.changeFile("replace", name, func(f Folder, name string) error {
		if err := replaceFile(f, name, content, mode, File.Sync); err != nil {
			return err
		}
		return f.Sync() // the folder contains the name and needs its own sync
	})
}

// Update is Replace unless the file has the content. Update creates the folder if necessary, with a mode.
func (d Disk) Update(name string, content []byte, mode, folder os.FileMode) error {
	if present, err := os.ReadFile(name); err == nil && bytes.Equal(present, content) {
		return nil // a write takes many times as long, and readers may react to each write
	}
	if err := os.MkdirAll(filepath.Dir(name), folder); err != nil {
		return err
	}
	return d.Replace(name, content, mode)
}

// Keep makes a name durable, as ReplaceDurably does: its process may have been killed before.
func (d Disk) Keep(name string) error {
	return d.changeFile("sync name of", name, func(f Folder, _ string) error { return f.Sync() })
}

// Remove removes a file, if it exists.
func (d Disk) Remove(name string) error {
	err := d.changeFile("remove", name, Folder.Remove)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// changeFile changes a file in its folder.
func (d Disk) changeFile(verb, name string, change func(f Folder, name string) error) error {
	folder, err := d.Folder(filepath.Dir(name))
	if err == nil {
		defer folder.Close()
		err = change(folder, filepath.Base(name))
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", verb, name, err)
	}
	return nil
}

// ReplaceIn is Disk.Replace in an open folder.
func ReplaceIn(f Folder, name string, content []byte, mode os.FileMode) error {
	return replaceFile(f, name, content, mode, func(File) error { return nil })
}

func replaceFile(f Folder, name string, content []byte, mode os.FileMode, sync func(File) error) (err error) {
	temporary := temporaries + rand.Text()
	file, err := f.Create(temporary)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.Remove(temporary)
		}
	}()
	_, err = file.Write(content)
	if err == nil {
		err = file.Chmod(mode)
	}
	if err == nil {
		err = sync(file)
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	return f.Rename(temporary, name)
}

// temporaries begins the names of temporary files.
const temporaries = ".tandem-"

// abandoned is the age of a temporary file whose process was killed: a write takes less.
const abandoned = time.Minute

// RemoveTemporaries removes all temporary files from a directory to which no other process can write now.
func (d Disk) RemoveTemporaries(dir string) error { return d.removeOlder(dir, 0) }

// RemoveAbandoned removes temporary files of killed processes from a directory to which other processes can
// write now: those of a minute or more.
func (d Disk) RemoveAbandoned(dir string) error { return d.removeOlder(dir, abandoned) }

// removeOlder removes temporary files of an age or older. A file from the future is as old as it is early:
// the clock was set back after the write.
func (d Disk) removeOlder(dir string, age time.Duration) error {
	names, err := fs.Glob(os.DirFS(dir), temporaries+"*")
	problems := []error{err}
	for _, name := range names {
		name = filepath.Join(dir, name)
		if info, err := os.Lstat(name); err == nil && time.Since(info.ModTime()).Abs() >= age {
			problems = append(problems, d.Remove(name))
		}
	}
	return errors.Join(problems...)
}

// Flock locks an open file as flock(2) does, and again after a signal.
func Flock(file *os.File, how int) error {
	for {
		if err := syscall.Flock(int(file.Fd()), how); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// ErrNewer means a file of a newer version of its program. Only that version may replace the file.
var ErrNewer = errors.New("the file is of a newer version")

// Layout is what a JSON file of a program always has. A file without it is unknown, not empty.
type Layout struct {
	Version int      // value of the key "version"; 0 for a file without this key
	Keys    []string // with a dot between the levels
}

// Decode decodes a JSON file that another process has written. The error of a newer version is an ErrNewer.
func Decode[T any](content []byte, layout Layout) (value T, err error) {
	if err := layout.checkLayout(content); err != nil {
		return value, err
	}
	if err := json.Unmarshal(content, &value); err != nil {
		return value, fmt.Errorf("parse JSON: %w", err)
	}
	return value, nil
}

// checkLayout returns an error for a file without the layout.
func (l Layout) checkLayout(content []byte) error {
	if l.Version > 0 {
		var file struct{ Version int }
		if err := json.Unmarshal(content, &file); err != nil {
			return fmt.Errorf("parse JSON: %w", err)
		}
		switch {
		case file.Version > l.Version:
			return fmt.Errorf("%w: it has version %d, this is %d", ErrNewer, file.Version, l.Version)
		case file.Version < l.Version:
			return fmt.Errorf("the file has version %d, this is %d", file.Version, l.Version)
		}
	}
	return checkKeys(content, l.Keys)
}

// checkKeys returns an error if an object lacks a key.
func checkKeys(content []byte, keys []string) error {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(content, &object); err != nil {
		return fmt.Errorf("parse JSON: %w", err)
	}
	below := map[string][]string{}
	for _, key := range keys {
		name, rest, deeper := strings.Cut(key, ".")
		if _, there := object[name]; !there {
			return fmt.Errorf("the layout is unknown: there is no key %q", name)
		}
		if deeper {
			below[name] = append(below[name], rest)
		}
	}
	for name, keys := range below {
		if err := checkKeys(object[name], keys); err != nil {
			return fmt.Errorf("key %s: %w", name, err)
		}
	}
	return nil
}
