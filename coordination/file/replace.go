// SPDX-License-Identifier: Apache-2.0

// Package file replaces files atomically.
package file

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Replace replaces a file in one step, so that no reader sees a partial file. After a power failure the file
// may be empty.
func (d Disk) Replace(name string, content []byte, mode os.FileMode) error {
	return d.in("replace", name, func(f Folder, name string) error {
		return Replace(f, name, content, mode)
	})
}

// ReplaceDurably is Replace with durability: after a successful return the file survives a power failure.
func (d Disk) ReplaceDurably(name string, content []byte, mode os.FileMode) error {
	return d.in("replace", name, func(f Folder, name string) error {
		if err := replace(f, name, content, mode, File.Sync); err != nil {
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
	return d.in("sync name of", name, func(f Folder, _ string) error { return f.Sync() })
}

// Remove removes a file, if it exists.
func (d Disk) Remove(name string) error {
	err := d.in("remove", name, Folder.Remove)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// in changes a file in its folder.
func (d Disk) in(verb, name string, change func(f Folder, name string) error) error {
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

// Replace is Disk.Replace in an open folder.
func Replace(f Folder, name string, content []byte, mode os.FileMode) error {
	return replace(f, name, content, mode, func(File) error { return nil })
}

func replace(f Folder, name string, content []byte, mode os.FileMode, sync func(File) error) (err error) {
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

// Abandoned is the age of a temporary file whose process was killed: a write takes less.
const Abandoned = time.Minute

// RemoveTemporaries removes temporary files of killed processes from a directory: those of an age, which is
// Abandoned if other processes write to the directory. A file from the future is as old as it is early: the
// clock was set back after the write.
func (d Disk) RemoveTemporaries(dir string, age time.Duration) error {
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
