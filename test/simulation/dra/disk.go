// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/test/disk"
)

// after ends the process if a step on the disk killed it. Other processes go on.
func (p *process) after(err error) error {
	if disk.IsKilled(err) {
		p.kill()
		p.node.disk.Restart()
	}
	return err
}

// do makes a step on the disk, unless the process is dead.
func (p *process) do(step func() error) error {
	if p.killed.Load() {
		return errKilled
	}
	return p.after(step())
}

// folder is a folder that a process has open.
type folder struct {
	process *process
	dir     string
	system.Folder
}

// Create creates a file.
func (f folder) Create(name string) (system.File, error) {
	var created system.File
	err := f.process.do(func() (err error) {
		created, err = f.Folder.Create(name)
		return err
	})
	name = filepath.Join(f.dir, name)
	stamp(name)
	return newFile{f.process, name, created}, err
}

// Rename renames a file.
func (f folder) Rename(from, to string) error {
	return f.process.do(func() error { return f.Folder.Rename(from, to) })
}

// Remove removes a file.
func (f folder) Remove(name string) error {
	return f.process.do(func() error { return f.Folder.Remove(name) })
}

// Sync makes the names durable.
func (f folder) Sync() error { return f.process.do(f.Folder.Sync) }

// Close closes the folder, also at the end of the process.
func (f folder) Close() error { return f.Folder.Close() }

// newFile is a file that a process writes.
type newFile struct {
	process *process
	name    string
	system.File
}

// Write writes a part.
func (f newFile) Write(content []byte) (n int, err error) {
	err = f.process.do(func() (err error) {
		n, err = f.File.Write(content)
		return err
	})
	stamp(f.name)
	return n, err
}

// Chmod changes the mode.
func (f newFile) Chmod(mode os.FileMode) error {
	return f.process.do(func() error { return f.File.Chmod(mode) })
}

// Sync makes the content durable.
func (f newFile) Sync() error { return f.process.do(f.File.Sync) }

// Close closes the file, also at the end of the process.
func (f newFile) Close() error { return f.process.after(f.File.Close()) }

// stamp gives a file, or the files of a directory, the virtual time: the age of a file decides whether it is
// abandoned.
func stamp(root string) { touch(root, time.Now()) }

// touch gives a file, or the files of a directory, a time.
func touch(root string, at time.Time) {
	_ = filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error { // a file can be gone
		if err == nil {
			err = os.Chtimes(path, at, at)
		}
		return err
	})
}
