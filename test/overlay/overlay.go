// SPDX-License-Identifier: Apache-2.0

// Package overlay replaces source files for the compiler, with the source tree unchanged.
package overlay

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Link is the argument with which test programs are linked. The linker omits the data of debuggers, which
// takes half of the time.
const Link = "-ldflags=-s -w -extldflags=-Wl,-z,lazy"

// Write writes new contents of source files into a folder, and returns the argument of the go command that
// replaces them. The paths of the sources are absolute.
func Write(folder string, contents map[string][]byte) (argument string, err error) {
	replaced := map[string]string{}
	for path, content := range contents {
		file := filepath.Join(folder, fmt.Sprintf("%d-%s", len(replaced), filepath.Base(path)))
		if err := os.WriteFile(file, content, 0o600); err != nil {
			return "", err
		}
		replaced[path] = file
	}
	list, err := json.Marshal(map[string]map[string]string{"Replace": replaced})
	if err != nil {
		return "", err
	}
	file := filepath.Join(folder, "overlay.json")
	return "-overlay=" + file, os.WriteFile(file, list, 0o600)
}
