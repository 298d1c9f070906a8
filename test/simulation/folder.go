// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tandem-k8s/tandem/coordination/system"
)

// disk is the disk of a process for the run directory. The death of a server ends the changes in the folders
// that it has open, and leaves their files as they are at that moment. What it opens later is the machine's,
// until all its goroutines have ended.
type disk struct {
	boot       string
	mu         sync.Mutex // held during each change
	dead       bool
	unfinished map[string]bool // new files without their final name
}

func newDisk(boot string) *disk { return &disk{boot: boot, unfinished: map[string]bool{}} }

// product returns the disk for the product.
func (d *disk) product() system.Disk { return system.Disk{Open: d.folder, Boot: d.boot} }

func (d *disk) folder(dir string) (system.Folder, error) {
	opened, err := system.OpenFolder(dir)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil || d.dead {
		return opened, err
	}
	return folder{opened, dir, d}, nil
}

// change makes a change in an open folder, unless the server is dead: then nothing happens.
func (d *disk) change(do func() error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead {
		return nil
	}
	return do()
}

// abandon ends the changes in all open folders, and removes unfinished files.
func (d *disk) abandon() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dead = true
	var problems []error
	for name := range d.unfinished {
		problems = append(problems, os.Remove(name))
	}
	return errors.Join(problems...)
}

// folder is an open folder of a process.
type folder struct {
	system.Folder
	dir string
	on  *disk
}

// Create creates a file. A dead server gets a file that is nowhere.
func (f folder) Create(name string) (created system.File, err error) {
	created = nowhere{}
	err = f.on.change(func() error {
		created, err = f.Folder.Create(name)
		if err == nil {
			f.on.unfinished[filepath.Join(f.dir, name)] = true
		}
		return err
	})
	return created, err
}

// Rename renames a file, which gets the virtual time: the age of a file decides whether somebody needs it.
func (f folder) Rename(from, to string) error {
	return f.finish(from, func() error {
		now := time.Now()
		return errors.Join(f.Folder.Rename(from, to), os.Chtimes(filepath.Join(f.dir, to), now, now))
	})
}

// Remove removes a file.
func (f folder) Remove(name string) error {
	return f.finish(name, func() error { return f.Folder.Remove(name) })
}

// finish makes a change that may end the time of an unfinished file.
func (f folder) finish(name string, do func() error) error {
	return f.on.change(func() error {
		delete(f.on.unfinished, filepath.Join(f.dir, name))
		return do()
	})
}

// nowhere is a new file of a dead server.
type nowhere struct{}

func (nowhere) Write(content []byte) (int, error) { return len(content), nil }
func (nowhere) Chmod(os.FileMode) error           { return nil }
func (nowhere) Sync() error                       { return nil }
func (nowhere) Close() error                      { return nil }
