// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/tandem-k8s/tandem/coordination/file"
)

// disk contains the file operations of a Preparer.
type disk interface {
	// keep replaces a file durably.
	keep(name string, content []byte) error
	replace(name string, content []byte) error
	// remove removes a file, if it exists.
	remove(name string) error
}

// files are the operations on the real file system.
type files struct{}

func (files) keep(name string, content []byte) error {
	if err := file.ReplaceDurably(name, content, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

func (files) replace(name string, content []byte) error {
	if err := file.Replace(name, content, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

func (files) remove(name string) error {
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove file: %w", err)
	}
	return nil
}
