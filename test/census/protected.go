// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// protectedFile lists what must not be removed, such as oracles and conditions of the simulation.
const protectedFile = "test/census/protected.txt"

// checkProtected returns an error for each line of the list that the repository does not fulfil: a file, or a
// folder and text that a file of the folder contains.
func checkProtected(repository fs.FS, list string) error {
	var missing []error
	for line := range strings.Lines(list) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, text, _ := strings.Cut(line, " ")
		found, err := contains(repository, name, text)
		switch {
		case err != nil:
			return fmt.Errorf("look for %q of %s: %w", line, protectedFile, err)
		case !found:
			missing = append(missing, fmt.Errorf("%s\n  is gone: the commit that removes it takes it off %s and says "+
				"why", line, protectedFile))
		}
	}
	return errors.Join(missing...)
}

// contains reports whether a file exists, or whether a file directly in a folder contains text.
func contains(repository fs.FS, name, text string) (bool, error) {
	if text == "" {
		_, err := fs.Stat(repository, name)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return err == nil, err
	}
	files, err := fs.Glob(repository, path.Join(name, "*.*"))
	if err != nil {
		return false, err
	}
	for _, file := range files {
		content, err := fs.ReadFile(repository, file)
		if err != nil {
			return false, err
		}
		if bytes.Contains(content, []byte(text)) {
			return true, nil
		}
	}
	return false, nil
}
