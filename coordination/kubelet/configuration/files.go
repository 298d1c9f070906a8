// SPDX-License-Identifier: Apache-2.0

package configuration

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

// FileName is where kubeadm puts the kubelet's configuration, below the kubelet's folder.
const FileName = "config.yaml"

// FileError says what is wrong with a file of the configuration.
type FileError struct {
	File string
	Err  error
}

// Error names the file once.
func (e *FileError) Error() string {
	var path *fs.PathError
	if errors.As(e.Err, &path) {
		return fmt.Sprintf("%s: %v", e.File, path.Err) // which names the file too
	}
	return fmt.Sprintf("%s: %v", e.File, e.Err)
}

// Unwrap is the error without the file.
func (e *FileError) Unwrap() error { return e.Err }

// DropIns are the files of a folder, "" for none, in the order in which the kubelet merges them
// (mergeKubeletConfigurations in cmd/kubelet/app/server.go). It fails with a [FileError].
func DropIns(dir string) ([]string, error) {
	if dir == "" {
		return nil, nil
	}
	var files []string
	at := dir
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		at = path
		if err == nil && !entry.IsDir() && filepath.Ext(path) == ".conf" {
			files = append(files, path)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, &FileError{at, err}
	}
	return files, nil
}
