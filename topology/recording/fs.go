// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"io"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"time"
)

// FS returns the machine as a read-only file system that follows links and is safe for concurrent use. Facts
// in the notation of this package (files config and vpd) are read in the format of sysfs.
func (m *Machine) FS() fs.FS { return &tree{root: m.root} }

// maxLinks is the maximum number of links that a lookup follows, as in the kernel (MAXSYMLINKS in
// include/linux/namei.h).
const maxLinks = 40

type tree struct{ root *node }

var _ interface {
	fs.ReadLinkFS
	fs.ReadDirFS
} = (*tree)(nil)

// Open implements fs.FS.
func (t *tree) Open(name string) (fs.File, error) {
	n, err := t.find("open", name, true)
	if err != nil {
		return nil, err
	}
	if n.isDir() {
		return &openDir{info: info{n}, entries: n.entries()}, nil
	}
	return &openFile{info: info{n}, Reader: strings.NewReader(n.content())}, nil
}

// ReadDir implements fs.ReadDirFS.
func (t *tree) ReadDir(name string) ([]fs.DirEntry, error) {
	n, err := t.find("readdir", name, true)
	if err != nil {
		return nil, err
	}
	if !n.isDir() {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: syscall.ENOTDIR}
	}
	return n.entries(), nil
}

// Lstat implements fs.ReadLinkFS.
func (t *tree) Lstat(name string) (fs.FileInfo, error) {
	n, err := t.find("lstat", name, false)
	if err != nil {
		return nil, err
	}
	return info{n}, nil
}

// ReadLink implements fs.ReadLinkFS.
func (t *tree) ReadLink(name string) (string, error) {
	n, err := t.find("readlink", name, false)
	if err != nil {
		return "", err
	}
	if n.kind != fs.ModeSymlink {
		return "", &fs.PathError{Op: "readlink", Path: name, Err: syscall.EINVAL}
	}
	return n.text, nil
}

// find returns the node of a name. It follows links in the path; at the end of the path, only with follow.
func (t *tree) find(op, name string, follow bool) (*node, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	n, err := t.walk(name, follow)
	if err != nil {
		return nil, &fs.PathError{Op: op, Path: name, Err: err}
	}
	return n, nil
}

func (t *tree) walk(name string, follow bool) (*node, error) {
	way := []*node{t.root}
	links := 0
	for rest := name; rest != ""; {
		var element string
		element, rest, _ = strings.Cut(rest, "/")
		here := way[len(way)-1]
		switch {
		case !here.isDir():
			return nil, syscall.ENOTDIR
		case element == ".":
			continue
		case element == ".." && len(way) == 1:
			return nil, fs.ErrNotExist
		case element == "..":
			way = way[:len(way)-1]
			continue
		}
		next := here.child(element)
		if next == nil {
			return nil, fs.ErrNotExist
		}
		if next.kind != fs.ModeSymlink || rest == "" && !follow {
			way = append(way, next)
			continue
		}
		if links++; links > maxLinks {
			return nil, syscall.ELOOP
		}
		if rest != "" {
			rest = "/" + rest
		}
		rest = next.text + rest
	}
	return way[len(way)-1], nil
}

func (n *node) entries() []fs.DirEntry {
	entries := make([]fs.DirEntry, len(n.children))
	for i, child := range n.children {
		entries[i] = info{child}
	}
	return entries
}

// info implements fs.FileInfo and fs.DirEntry. Files and directories are read-only.
type info struct{ *node }

func (i info) Name() string {
	if i.name == "" {
		return "."
	}
	return i.name
}

func (i info) Size() int64                { return int64(len(i.content())) }
func (i info) ModTime() time.Time         { return time.Time{} }
func (i info) IsDir() bool                { return i.isDir() }
func (i info) Sys() any                   { return nil }
func (i info) Type() fs.FileMode          { return i.kind }
func (i info) Info() (fs.FileInfo, error) { return i, nil }

func (i info) Mode() fs.FileMode {
	switch i.kind {
	case fs.ModeDir:
		return fs.ModeDir | 0o555
	case fs.ModeSymlink:
		return fs.ModeSymlink | 0o777
	default:
		return 0o444
	}
}

// openFile implements fs.File for a file.
type openFile struct {
	info
	*strings.Reader
}

func (f *openFile) Size() int64                { return f.info.Size() }
func (f *openFile) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *openFile) Close() error               { return nil }

// openDir implements fs.ReadDirFile.
type openDir struct {
	info
	entries []fs.DirEntry
}

func (d *openDir) Stat() (fs.FileInfo, error) { return d.info, nil }
func (d *openDir) Close() error               { return nil }

func (d *openDir) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.Name(), Err: syscall.EISDIR}
}

// ReadDir implements fs.ReadDirFile.
func (d *openDir) ReadDir(n int) ([]fs.DirEntry, error) {
	if n <= 0 {
		n = len(d.entries)
	} else if len(d.entries) == 0 {
		return nil, io.EOF
	}
	n = min(n, len(d.entries))
	entries := slices.Clone(d.entries[:n])
	d.entries = d.entries[n:]
	return entries, nil
}
