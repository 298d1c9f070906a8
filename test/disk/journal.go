// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
)

// content is a content of a file, apart from the file's name.
type content struct {
	written []byte
	mode    os.FileMode
	synced  bool
}

// journal has the changes of a folder that a power failure can take back.
type journal struct {
	dir     string
	names   map[string]*content   // contents that were written by the disk, under their present names
	pending []map[string]*content // contents before each change since the last sync, by name; nil for none
}

func (d *Disk) journal(dir string) *journal {
	if d.folders[dir] == nil {
		d.folders[dir] = &journal{dir: dir, names: map[string]*content{}}
	}
	return d.folders[dir]
}

// at returns the content under a name, nil for none.
func (j *journal) at(name string) *content {
	if c := j.names[name]; c != nil {
		return c
	}
	written, err := os.ReadFile(filepath.Join(j.dir, name))
	if err != nil {
		return nil
	}
	mode := os.FileMode(0o600)
	if info, err := os.Stat(filepath.Join(j.dir, name)); err == nil {
		mode = info.Mode().Perm()
	}
	return &content{written, mode, true}
}

// change gives names other contents. Undo, called with an error, takes back the change.
func (j *journal) change(after map[string]*content) (undo func(error) error) {
	before := map[string]*content{}
	for name := range after {
		before[name] = j.at(name)
	}
	j.pending = append(j.pending, before)
	maps.Copy(j.names, after)
	return func(err error) error {
		if err != nil {
			j.pending = j.pending[:len(j.pending)-1]
			maps.Copy(j.names, before)
		}
		return err
	}
}

// sync makes the names durable.
func (j *journal) sync() {
	j.pending = nil
	maps.DeleteFunc(j.names, func(_ string, c *content) bool { return c == nil || c.synced })
}

// Settle makes all contents and names durable. Must be called before a test changes files by itself.
func (d *Disk) Settle() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.folders)
}

// PowerFailure ends the machine and starts the machine again: in each folder, only the first of the changes
// since the last sync remain; and contents that were not synced are complete, cut or end with zeros. Folders
// in memory lose all files.
func (d *Disk) PowerFailure(inMemory ...string) error {
	d.Restart()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.end()
	d.story = append(d.story, "power failure")
	for _, dir := range inMemory {
		delete(d.folders, dir)
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(d.folders)) {
		if err := d.folders[dir].fail(d); err != nil {
			return err
		}
	}
	clear(d.folders)
	return nil
}

// fail takes back changes of a folder.
func (j *journal) fail(d *Disk) error {
	kept := d.random.IntN(len(j.pending) + 1)
	if lost := len(j.pending) - kept; lost > 0 {
		d.story = append(d.story, fmt.Sprintf("%s loses the last %d changes of names", filepath.Base(j.dir), lost))
	}
	for _, before := range slices.Backward(j.pending[kept:]) {
		maps.Copy(j.names, before)
	}
	for _, name := range slices.Sorted(maps.Keys(j.names)) {
		path := filepath.Join(j.dir, name)
		if err := os.RemoveAll(path); err != nil {
			return err
		}
		c := j.names[name]
		if c == nil {
			continue
		}
		if err := os.WriteFile(path, c.surviving(d.random), c.mode|0o200); err != nil {
			return err
		}
		if err := os.Chmod(path, c.mode); err != nil {
			return err
		}
	}
	return nil
}

// surviving returns what a power failure leaves of a content.
func (c *content) surviving(random *rand.Rand) []byte {
	if c.synced {
		return c.written
	}
	cut := random.IntN(len(c.written) + 1)
	switch random.IntN(3) {
	case 0:
		return c.written
	case 1:
		return c.written[:cut]
	default:
		return append(bytes.Clone(c.written[:cut]), make([]byte, len(c.written)-cut)...)
	}
}
