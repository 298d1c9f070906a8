// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// writeRoot writes the files of the image to a new folder, with their modes: a container engine that builds
// the image copies that folder.
func writeRoot(dir, bin, busybox string) error {
	layers, err := contents(bin, busybox)
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil { // files of an earlier time would be in the image
		return fmt.Errorf("make the root: %w", err)
	}
	files := slices.Concat(layers...)
	for _, folder := range folders(files) {
		if err := writeFolder(filepath.Join(dir, folder)); err != nil {
			return fmt.Errorf("write the folder %s: %w", folder, err)
		}
	}
	for _, f := range files {
		if err := f.write(filepath.Join(dir, f.name)); err != nil {
			return fmt.Errorf("write the file %s: %w", f.name, err)
		}
	}
	return nil
}

func writeFolder(path string) error {
	if err := os.Mkdir(path, 0o755); err != nil {
		return err
	}
	return os.Chmod(path, 0o755) // whatever the umask is
}

func (f file) write(path string) error {
	if f.link != "" {
		return os.Symlink(f.link, path)
	}
	content, err := f.content()
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, content, f.mode()); err != nil {
		return err
	}
	return os.Chmod(path, f.mode()) // whatever the umask is
}
