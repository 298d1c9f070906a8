// SPDX-License-Identifier: Apache-2.0

package hardware

import (
	"io"
	"io/fs"
	"strings"
	"sync"
)

// memory is a file system that does not change, and finds a file that was opened before by its name alone: a
// monitor of health opens the same files every minute, and those that a machine lacks.
type memory struct {
	fs.FS
	known sync.Map // answer of each name
}

// answer is the result of Open.
type answer func() (fs.File, error)

// Open opens a file or folder.
func (m *memory) Open(name string) (fs.File, error) {
	if known, ok := m.known.Load(name); ok {
		return known.(answer)()
	}
	opened, err := m.FS.Open(name)
	if err != nil {
		m.known.Store(name, answer(func() (fs.File, error) { return nil, err }))
		return nil, err
	}
	info, err := opened.Stat()
	if err != nil || info.IsDir() {
		return opened, err
	}
	all, err := io.ReadAll(opened)
	if err != nil {
		return nil, err
	}
	content := string(all)
	open := func() (fs.File, error) { return &openFile{strings.NewReader(content), info}, nil }
	m.known.Store(name, answer(open))
	return open()
}

// openFile is an open file.
type openFile struct {
	*strings.Reader
	info fs.FileInfo
}

// Stat describes the file.
func (f *openFile) Stat() (fs.FileInfo, error) { return f.info, nil }

// Close does nothing.
func (*openFile) Close() error { return nil }
