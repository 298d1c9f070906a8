// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"strings"

	"github.com/tandem-k8s/tandem/test/golist"
)

// modules have shipped code.
var modules = []string{".", "cmd/tandem-scheduler"}

// load returns the folders of the packages that each package is linked with, itself included.
func load(root string) (linked map[string][]string, err error) {
	linked = map[string][]string{}
	for _, name := range modules {
		packages, err := golist.Compiled(filepath.Join(root, name), "./...")
		if err != nil {
			return nil, err
		}
		for _, p := range packages {
			folder, own := strings.CutPrefix(p.ImportPath, module)
			if !own || p.DepOnly {
				continue
			}
			linked[folder] = []string{folder}
			for _, path := range p.Deps {
				if dependency, own := strings.CutPrefix(path, module); own {
					linked[folder] = append(linked[folder], dependency)
				}
			}
		}
	}
	return linked, nil
}
