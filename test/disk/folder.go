// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"io"
	"os"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/system"
)

// folder is an open folder.
type folder struct {
	disk   *Disk
	dir    string
	actual system.Folder
}

func (d *Disk) openFolder(dir string) (system.Folder, error) {
	f := &folder{disk: d, dir: dir}
	return f, f.do("open folder", func() (err error) {
		if f.actual, err = system.OpenFolder(dir); err == nil {
			d.open = append(d.open, f.actual)
		}
		return err
	})
}

func (f *folder) do(name string, whole func() error) error {
	return f.disk.do(step{dir: f.dir, name: name, whole: whole})
}

func (f *folder) Create(name string) (system.File, error) {
	n := &newFile{folder: f, content: &content{mode: 0o600}}
	return n, f.do("create", func() (err error) {
		undo := f.journal().change(map[string]*content{name: n.content})
		if n.actual, err = f.actual.Create(name); err == nil {
			f.disk.open = append(f.disk.open, n.actual)
		}
		return undo(err)
	})
}

// journal must be called in a step.
func (f *folder) journal() *journal { return f.disk.journal(f.dir) }

func (f *folder) Rename(from, to string) error {
	return f.do("rename", func() error {
		moved := f.journal().at(from)
		undo := f.journal().change(map[string]*content{from: nil, to: moved})
		return undo(f.actual.Rename(from, to))
	})
}

func (f *folder) Remove(name string) error {
	return f.do("remove", func() error {
		undo := f.journal().change(map[string]*content{name: nil})
		return undo(f.actual.Remove(name))
	})
}

func (f *folder) Sync() error {
	return f.do("sync folder", func() error {
		f.journal().sync()
		return nil
	})
}

// Close is no step, because the end of the process has the same effect.
func (f *folder) Close() error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	return f.disk.close(f.actual)
}

// close closes a file or folder of the process.
func (d *Disk) close(opened io.Closer) error {
	d.open = slices.DeleteFunc(d.open, func(o io.Closer) bool { return o == opened })
	return opened.Close()
}

// newFile is an open file.
type newFile struct {
	folder  *folder
	actual  system.File
	content *content
}

func (n *newFile) Write(written []byte) (count int, err error) {
	write := func(part []byte) error {
		n.content.written = append(n.content.written, part...)
		count, err = n.actual.Write(part)
		return err
	}
	err = n.folder.disk.do(step{
		dir: n.folder.dir, name: "write",
		whole: func() error { return write(written) },
		part:  func(share float64) { _ = write(written[:int(share*float64(len(written)))]) },
	})
	return count, err
}

func (n *newFile) Chmod(mode os.FileMode) error {
	return n.folder.do("chmod", func() error {
		n.content.mode = mode
		return n.actual.Chmod(mode)
	})
}

func (n *newFile) Sync() error {
	return n.folder.do("sync", func() error {
		n.content.synced = true
		return nil
	})
}

func (n *newFile) Close() error {
	return n.folder.disk.do(step{dir: n.folder.dir, name: "close", cleanUp: true, whole: func() error {
		return n.folder.disk.close(n.actual)
	}})
}
