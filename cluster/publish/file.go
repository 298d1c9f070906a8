package publish

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/tandem-k8s/tandem/cluster/publish/facts"
	"github.com/tandem-k8s/tandem/coordination/file"
)

// File is a sink that keeps a file.
type File struct {
	name, path string
	render     func(facts.Facts) []byte
}

// NewFile makes a sink that --publish has a name for. The folder has to be there.
func NewFile(name, path string, render func(facts.Facts) []byte) *File {
	return &File{name, path, render}
}

// Name is what --publish calls it.
func (s *File) Name() string { return s.name }

// Forget changes nothing: each Write reads the file.
func (s *File) Forget() {}

// Write replaces the file where its content is another.
func (s *File) Write(_ context.Context, f facts.Facts) (written bool, err error) {
	want := s.render(f)
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
