// SPDX-License-Identifier: Apache-2.0

package functions

import (
	"io/fs"
	"testing/fstest"
)

// Faulty is a file system with faults: Fail returns the error of a call, such as "read", for a name.
type Faulty struct {
	Files fstest.MapFS
	Fail  func(call, name string) error
}

// Open opens a file.
func (f Faulty) Open(name string) (fs.File, error) { return try(f, "open", name, f.Files.Open) }

// ReadFile reads a file.
func (f Faulty) ReadFile(name string) ([]byte, error) { return try(f, "read", name, f.Files.ReadFile) }

// ReadDir lists a folder.
func (f Faulty) ReadDir(name string) ([]fs.DirEntry, error) {
	return try(f, "list", name, f.Files.ReadDir)
}

// ReadLink returns the target of a link.
func (f Faulty) ReadLink(name string) (string, error) {
	return try(f, "readlink", name, f.Files.ReadLink)
}

// Lstat describes a file or link.
func (f Faulty) Lstat(name string) (fs.FileInfo, error) { return try(f, "lstat", name, f.Files.Lstat) }

// Stat describes a file, or what a link leads to.
func (f Faulty) Stat(name string) (fs.FileInfo, error) { return try(f, "stat", name, f.Files.Stat) }

func try[T any](f Faulty, call, name string, do func(string) (T, error)) (result T, err error) {
	if err := f.Fail(call, name); err != nil {
		return result, &fs.PathError{Op: call, Path: name, Err: err}
	}
	return do(name)
}
