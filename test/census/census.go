// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
)

// figure is a number with a limit.
type figure struct {
	name  string
	value int
	names []string // of the counted declarations
}

// census holds the figures of a repository.
type census struct {
	packages, rows []row // of shipped code by package; of all code, and of parts of it
	figures        []figure
	p90            int // lines
}

// row is the size of a group of packages.
type row struct {
	name string
	size size
}

// count counts a repository with the folders that each package is linked with.
func (r *repository) count(linked map[string][]string) *census {
	c, own := &census{}, r.of(shipped)
	packages := byFolder(own)
	for _, folder := range slices.Sorted(maps.Keys(packages)) {
		c.packages = append(c.packages, row{folder, sizeOf(packages[folder])})
	}
	all := sizeOf(own)
	c.rows = []row{{"shipped", all}}
	c.add("statements and declarations", all.statements)
	c.add("lines", all.lines)
	c.add("lines with code", all.code)
	c.add("files", all.files)
	c.add("packages", all.packages)
	for _, programs := range [][]string{{"tandem-gpu", "tandem-rdma"}, {"tandem-dra"}, {"tandem"}} {
		c.addPart(strings.Join(programs, " and ")+", with all that is linked",
			linkedInto(programs, linked, packages))
	}
	c.addPart("tandem-lab, with playground and simulate", r.of(lab))
	c.rows = append(c.rows, row{"builds releases", sizeOf(r.of(release))})
	c.addNames(r, own)
	c.addPart("tests", r.of(tests))
	c.add("words in documents", r.words)
	return c
}

// addNames adds what makes code hard to follow.
func (c *census) addNames(r *repository, own []*source) {
	all, exported := r.functions(own), r.exportedNames()
	var heads []string
	for _, s := range own {
		heads = append(heads, r.changesInHeads(s.syntax)...)
	}
	p90, longest := lengthsOf(all)
	c.p90 = p90
	c.addAll("functions with a name of one word", oneWordNames(all))
	c.addAll("assignments in the head of an if or switch", heads)
	c.addAll("exported names", exported.all)
	c.addAll("exported names for one package", exported.forOne)
	c.addAll("exported names for no package", exported.forNone)
	c.addAll("exported names for tests alone", exported.forTests)
	c.add("lines of nine of ten functions", p90)
	c.add("lines of the longest function", longest)
	for _, f := range forms(formsFile) {
		c.addAll("structs of the form "+f.word, f.structs(own))
	}
}

func (c *census) add(name string, value int) { c.figures = append(c.figures, figure{name, value, nil}) }

func (c *census) addAll(name string, names []string) {
	c.figures = append(c.figures, figure{name, len(names), names})
}

// addPart adds a row whose lines have a limit.
func (c *census) addPart(name string, sources []*source) {
	s := sizeOf(sources)
	c.rows = append(c.rows, row{name, s})
	c.add("lines of "+name, s.lines)
}

// linkedInto returns the files of all packages that one of the programs is linked with.
func linkedInto(
	programs []string, linked map[string][]string, packages map[string][]*source,
) (all []*source) {
	folders := map[string]bool{}
	for _, p := range programs {
		for _, folder := range linked["cmd/"+p] {
			folders[folder] = true
		}
	}
	for folder := range folders {
		all = append(all, packages[folder]...)
	}
	return all
}

// write writes the sizes, the figures, and what is counted for figures that an expression matches.
func (c *census) write(out io.Writer, limits []limit, names *regexp.Regexp) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PACKAGE\tSTATEMENTS\tLINES\tCODE\tCOMMENTS\tFILES\tPACKAGES")
	for _, r := range append(append(c.packages, row{}), c.rows...) {
		s := r.size
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\n",
			r.name, s.statements, s.lines, s.code, s.comments, s.files, s.packages)
	}
	fmt.Fprintln(w, "\nFIGURE\tAT c94aa67a\tLIMIT\tNOW")
	for _, f := range c.figures {
		l := find(limits, f.name)
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\n", f.name, l.before, l.value, f.value)
	}
	w.Flush()
	for _, f := range c.figures {
		if len(f.names) > 0 && names.MatchString(f.name) {
			fmt.Fprintf(out, "\n%s:\n  %s\n", f.name, strings.Join(f.names, "\n  "))
		}
	}
}
