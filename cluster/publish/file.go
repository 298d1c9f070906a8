// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/tandem-k8s/tandem/cluster/publish/facts"
	"github.com/tandem-k8s/tandem/coordination/file"
)

// What a file says holds for validity after it was written, less up to renewal: a daemon that has gone leaves
// a file that nobody believes any more.
const (
	validity = 30 * time.Minute
	renewal  = 10 * time.Minute
)

// File is a sink that keeps a file.
type File struct {
	name, path string
	render     Render
}

// Render makes the content of a file, which holds until a time.
type Render func(f facts.Facts, until time.Time) []byte

// NewFile makes a sink that --publish has a name for. The folder has to be there.
func NewFile(name, path string, render Render) *File {
	return &File{name, path, render}
}

// Name is what --publish calls it.
func (s *File) Name() string { return s.name }

// Forget changes nothing: each Write reads the file.
func (s *File) Forget() {}

// Write replaces the file if its content is another, which the time until which it holds makes it every
// renewal.
func (s *File) Write(_ context.Context, f facts.Facts) (written bool, err error) {
	want := s.render(f, time.Now().Truncate(renewal).Add(validity))
	has, err := os.ReadFile(s.path)
	if err == nil && bytes.Equal(has, want) {
		return false, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("read what is published: %w", err)
	}
	if err := file.Replace(s.path, want, 0o644); err != nil {
		return false, fmt.Errorf("publish %s: %w", s.path, err)
	}
	return true, nil
}
