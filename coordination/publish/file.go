// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/tandem-k8s/tandem/coordination/file"
	"github.com/tandem-k8s/tandem/coordination/publish/facts"
)

// The content of a file is valid for validity after the write, less up to renewal, so that the file of a
// stopped daemon expires.
const (
	validity = 30 * time.Minute
	renewal  = 10 * time.Minute
)

// File is a sink that keeps a file up to date.
type File struct {
	disk       file.Disk
	name, path string
	render     Render
}

// Render makes the content of a file with an expiry time.
type Render func(f facts.Facts, until time.Time) []byte

// NewFile returns a sink with a name of --publish. The folder must exist.
func NewFile(disk file.Disk, name, path string, render Render) *File {
	return &File{disk, name, path, render}
}

// Name returns the name in --publish.
func (s *File) Name() string { return s.name }

// Forget does nothing, because each Write reads the file.
func (s *File) Forget() {}

// Write replaces the file if the content differs; the expiry time changes every renewal.
func (s *File) Write(_ context.Context, f facts.Facts) (written bool, err error) {
	want := s.render(f, time.Now().Truncate(renewal).Add(validity))
	has, err := os.ReadFile(s.path)
	if err == nil && bytes.Equal(has, want) {
		return false, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("read what is published: %w", err)
	}
	err = s.disk.RemoveTemporaries(filepath.Dir(s.path), file.Abandoned)
	if err := errors.Join(err, s.disk.Replace(s.path, want, 0o644)); err != nil {
		return false, fmt.Errorf("publish: %w", err)
	}
	return true, nil
}
