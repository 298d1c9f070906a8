// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// figure is a number that has a limit.
type figure struct {
	name  string
	value int
}

// census has all that is counted.
type census struct {
	figures  []figure
	packages map[string]size // of shipped code
	rows     []row
	forms    map[string][]string // structs by form
	helpers  int                 // with one caller
	p90      int
}

// row is the size of what belongs together.
type row struct {
	name string
	size size
}

// count counts a repository with the folders that each package is linked with, and the methods that implement
// foreign interfaces.
func (r *repository) count(linked map[string][]string, foreign map[string]bool) *census {
	own := r.of(shipped)
	c := &census{packages: map[string]size{}, forms: map[string][]string{}, helpers: r.oneCallerHelpers(own)}
	packages := byFolder(own)
	for folder, sources := range packages {
		c.packages[folder] = sizeOf(sources)
	}
	all := sizeOf(own)
	c.rows = []row{{"shipped", all}}
	c.add("statements and declarations", all.statements)
	c.add("lines", all.lines)
	c.add("lines with code", all.code)
	c.add("files", all.files)
	c.add("packages", all.packages)
	for _, programs := range [][]string{{"tandem-gpu", "tandem-rdma"}, {"tandem-dra"}, {"tandem"}} {
		s := sizeOf(linkedInto(programs, linked, packages))
		c.addRow(strings.Join(programs, " and ")+", with all that is linked", s)
	}
	c.addRow("tandem-lab, with playground and simulate", sizeOf(r.of(lab)))
	c.rows = append(c.rows, row{"builds releases", sizeOf(r.of(release))}, row{"tests", sizeOf(r.of(tests))})
	c.addNames(r, own, foreign)
	for _, f := range forms(formsFile) {
		c.forms[f.word] = f.structs(own)
		c.add("structs of the form "+f.word, len(c.forms[f.word]))
	}
	c.add("lines of tests", sizeOf(r.of(tests)).lines)
	c.add("words in documents", r.words)
	return c
}

// addNames adds what makes code hard to follow.
func (c *census) addNames(r *repository, own []*source, foreign map[string]bool) {
	all := r.functions(own)
	heads := 0
	for _, s := range own {
		heads += changesInHeads(s.syntax)
	}
	names := r.exportedNames()
	p90, longest := lengthsOf(all)
	c.p90 = p90
	c.add("functions with a name of one word", len(oneWordNames(all, foreign)))
	c.add("assignments in the head of an if or switch", heads)
	c.add("exported names", names.all)
	c.add("exported names for one package", names.forOne)
	c.add("exported names for no package", names.forNone)
	c.add("exported names for tests alone", names.forTests)
	c.add("lines of nine of ten functions", p90)
	c.add("lines of the longest function", longest)
}

func (c *census) add(name string, value int) { c.figures = append(c.figures, figure{name, value}) }

// addRow adds a row whose lines have a limit.
func (c *census) addRow(name string, s size) {
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

// writeTo writes the size of each package and of the rows, the figures, the structs by form, and what has no
// limit.
func (c *census) writeTo(out io.Writer, limits []limit) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PACKAGE\tSTATEMENTS\tLINES\tCODE\tCOMMENTS\tFILES\tPACKAGES")
	for _, folder := range slices.Sorted(maps.Keys(c.packages)) {
		c.packages[folder].writeTo(w, folder)
	}
	fmt.Fprintln(w, "\t\t\t\t\t\t")
	for _, r := range c.rows {
		r.size.writeTo(w, r.name)
	}
	fmt.Fprintln(w, "\nFIGURE\tAT c94aa67a\tLIMIT\tNOW")
	for _, f := range c.figures {
		l := find(limits, f.name)
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\n", f.name, l.before, l.value, f.value)
	}
	w.Flush()
	for _, word := range slices.Sorted(maps.Keys(c.forms)) {
		fmt.Fprintf(out, "\n%s: %s\n", word, strings.Join(c.forms[word], ", "))
	}
	fmt.Fprintf(out, "\nShort functions with one caller that could hold them, without limit: %d\n", c.helpers)
}

func (s size) writeTo(w io.Writer, name string) {
	fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\n",
		name, s.statements, s.lines, s.code, s.comments, s.files, s.packages)
}
