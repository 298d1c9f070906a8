// SPDX-License-Identifier: Apache-2.0

package configuration

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// Files are the paths of the kubelet's configuration: a file, and a folder of drop-ins, "" for none.
type Files struct{ Config, Dir string }

// maxSize is the maximum size of a file of the configuration, in bytes.
const maxSize = 1 << 20

// Decode merges the files into a value, like the kubelet: later files override earlier ones. Decode ignores
// the kubelet's flags. The error is a [FileError], also if there is no file.
func (f Files) Decode(into any) error {
	files, err := DropIns(f.Dir)
	if err != nil {
		return err
	}
	found := false
	for _, file := range append([]string{f.Config}, files...) {
		content, err := read(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			_, err = Decode(content, into)
		}
		if err != nil {
			return &FileError{File: file, Err: err}
		}
		found = true
	}
	if !found {
		return &FileError{File: f.Config, Err: fs.ErrNotExist}
	}
	return nil
}

// read reads a file of at most maxSize bytes.
func read(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxSize+1))
	if err == nil && len(content) > maxSize {
		err = fmt.Errorf("more than %d bytes", maxSize)
	}
	return content, err
}
