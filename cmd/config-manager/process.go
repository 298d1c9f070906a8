// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// stockPlugin is the name of NVIDIA's plugin, which the GPU operator and NVIDIA's chart pass. The image has
// Tandem's daemon under this name too; it is also found under its own name.
const (
	stockPlugin = "nvidia-device-plugin"
	ownPlugin   = "tandem-gpu"
)

// find returns the processes that were started under a name, in any directory. It returns an error if there
// is none, because the plugin would keep its old configuration.
func find(proc, name string) ([]int, error) {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var found []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		line, err := os.ReadFile(filepath.Join(proc, entry.Name(), "cmdline"))
		if err != nil {
			continue // the process has ended
		}
		started, _, _ := strings.Cut(string(line), "\x00")
		program := filepath.Base(started)
		if program == name || name == stockPlugin && program == ownPlugin {
			found = append(found, pid)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("find the process %s, to send it a signal: there is none in this pod; "+
			"the pod has to have shareProcessNamespace", name)
	}
	return found, nil
}
