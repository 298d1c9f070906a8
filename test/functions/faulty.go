// SPDX-License-Identifier: Apache-2.0

package functions

import "io/fs"

// Faulty is a file system with faults: Fail returns the error of a call, such as "read", for a name. It may
// wait instead.
type Faulty struct {
	Files fs.FS
	Fail  func(call, name string) error
}

// Open opens a file.
func (f Faulty) Open(name string) (fs.File, error) { return try(f, "open", name, fs.FS.Open) }

// ReadFile reads a file.
func (f Faulty) ReadFile(name string) ([]byte, error) { return try(f, "read", name, fs.ReadFile) }

// ReadDir lists a folder.
func (f Faulty) ReadDir(name string) ([]fs.DirEntry, error) { return try(f, "list", name, fs.ReadDir) }

// ReadLink returns the target of a link.
func (f Faulty) ReadLink(name string) (string, error) { return try(f, "readlink", name, fs.ReadLink) }

// Lstat describes a file or link.
func (f Faulty) Lstat(name string) (fs.FileInfo, error) { return try(f, "lstat", name, fs.Lstat) }

// Stat describes a file, or what a link leads to.
func (f Faulty) Stat(name string) (fs.FileInfo, error) { return try(f, "stat", name, fs.Stat) }

func try[T any](f Faulty, call, name string, do func(fs.FS, string) (T, error)) (result T, err error) {
	if err := f.Fail(call, name); err != nil {
		return result, &fs.PathError{Op: call, Path: name, Err: err}
	}
	return do(f.Files, name)
}
