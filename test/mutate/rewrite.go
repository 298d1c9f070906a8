// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// imported is added to each rewritten file, on the line of the package's name, so that lines stay.
const imported = `; import mutation_ "` + module + `test/mutate/mutation"`

// rewrite returns the contents of the files with all sites of a sample.
func rewrite(all []*code, sample []*site) map[string][]byte {
	byFile := map[string][]*site{}
	for _, s := range sample {
		byFile[s.path] = append(byFile[s.path], s)
	}
	contents := map[string][]byte{}
	for _, c := range all {
		for _, file := range c.files {
			if sites := byFile[file.path]; sites != nil {
				name := int(file.syntax.Name.End() - file.syntax.FileStart)
				contents[file.path] = file.with(append(changes(sites), edit{at: name, text: imported}))
			}
		}
	}
	return contents
}

// changes returns the edits of sites. At one place, what ends comes before what begins, and of two that end
// there the inner one comes first.
func changes(sites []*site) (all []edit) {
	for _, s := range sites {
		for _, e := range s.edits {
			e.text = strings.ReplaceAll(e.text, "SITE", strconv.Itoa(s.number))
			all = append(all, e)
		}
	}
	closing := slices.DeleteFunc(slices.Clone(all), func(e edit) bool { return !e.closes })
	opening := slices.DeleteFunc(all, func(e edit) bool { return e.closes })
	slices.Reverse(closing)
	return append(closing, opening...)
}

// with returns the content of a file with edits.
func (f source) with(edits []edit) (content []byte) {
	slices.SortStableFunc(edits, func(a, b edit) int { return cmp.Compare(a.at, b.at) })
	done := 0
	for _, e := range edits {
		content = append(append(content, f.content[done:e.at]...), e.text...)
		done = e.at + e.cut
	}
	return append(content, f.content[done:]...)
}
