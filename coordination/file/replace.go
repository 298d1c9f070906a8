// SPDX-License-Identifier: Apache-2.0

// Package file replaces files atomically.
package file

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Replace replaces a file in one step, so that no reader sees a partial file. After a power failure the file
// may be empty.
func Replace(file string, content []byte, mode os.FileMode) error {
	return replace(file, content, mode, func(*os.File) error { return nil })
}

// ReplaceDurably is Replace with durability: after a successful return the file survives a power failure.
func ReplaceDurably(file string, content []byte, mode os.FileMode) error {
	if err := replace(file, content, mode, (*os.File).Sync); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(file))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close()) // the directory contains the name and needs its own sync
}

// Holds reports whether a file has a content, so that there is no reason to replace the file.
func Holds(file string, content []byte) bool {
	present, err := os.ReadFile(file)
	return err == nil && bytes.Equal(present, content)
}

func replace(file string, content []byte, mode os.FileMode, sync func(*os.File) error) (err error) {
	temporary, err := os.CreateTemp(filepath.Dir(file), temporaries)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(temporary.Name())
		}
	}()
	_, err = temporary.Write(content)
	if err == nil {
		err = temporary.Chmod(mode)
	}
	if err == nil {
		err = sync(temporary)
	}
	if err = errors.Join(err, temporary.Close()); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), file)
}

// temporaries is the pattern of temporary file names.
const temporaries = ".tandem-*"

// RemoveTemporaries removes temporary files of killed processes from a directory. No other process may write
// to the directory.
func RemoveTemporaries(dir string) error {
	names, err := fs.Glob(os.DirFS(dir), temporaries)
	problems := []error{err}
	for _, name := range names {
		problems = append(problems, os.Remove(filepath.Join(dir, name)))
	}
	return errors.Join(problems...)
}
