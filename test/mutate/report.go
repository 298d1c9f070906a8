// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"
)

// report has the results of a sample.
type report struct {
	Seed      uint64   `json:"seed"`
	Packages  []row    `json:"packages"`
	Mutations []result `json:"mutations"`
}

// row has the numbers of a package.
type row struct {
	Package    string  `json:"package"`
	Sites      int     `json:"sites"`
	Sampled    int     `json:"sampled"`
	Dead       int     `json:"dead"`
	Survived   int     `json:"survived"`
	NotReached int     `json:"notReached"`
	Share      float64 `json:"share"`   // of the sampled ones that die
	Seconds    float64 `json:"seconds"` // of CPU time for a mutation, in the mean
}

// put adds or replaces the results of the sampled sites of a package, and the number of all its sites.
func (r *report) put(name string, all int, sampled []*site) row {
	r.Packages = slices.DeleteFunc(r.Packages, func(p row) bool { return p.Package == name })
	r.Mutations = slices.DeleteFunc(r.Mutations, func(one result) bool { return one.Package == name })
	sum := row{Package: name, Sites: all}
	for _, s := range sampled {
		sum.count(s.result)
		r.Mutations = append(r.Mutations, s.result)
	}
	sum.finish()
	r.Packages = append(r.Packages, sum)
	return sum
}

func (r *row) count(one result) {
	r.Sampled++
	r.Seconds += one.Seconds
	switch one.Outcome {
	case dead:
		r.Dead++
	case survived:
		r.Survived++
	case notReached:
		r.NotReached++
	}
}

func (r *row) finish() {
	if r.Sampled > 0 {
		r.Share = float64(r.Dead) / float64(r.Sampled)
		r.Seconds /= float64(r.Sampled)
	}
}

// total returns the sum of all packages.
func (r *report) total() row {
	sum := row{Package: "all"}
	for _, one := range r.Mutations {
		sum.count(one)
	}
	for _, p := range r.Packages {
		sum.Sites += p.Sites
	}
	sum.finish()
	return sum
}

// table writes a line for each package, and the sum.
func (r *report) table(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "sites\tsampled\tdead\tsurvived\tnot reached\tshare\tseconds\t  package")
	for _, p := range append(slices.Clone(r.Packages), r.total()) {
		fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%d\t%.0f%%\t%.1f\t  %s\n",
			p.Sites, p.Sampled, p.Dead, p.Survived, p.NotReached, 100*p.Share, p.Seconds, p.Package)
	}
	w.Flush()
}

// write writes the report as JSON.
func (r *report) write(path string) error {
	content, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(content, '\n'), 0o644)
}

// read reads a report.
func read(path string) (*report, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := new(report)
	if err := json.Unmarshal(content, r); err != nil {
		return nil, fmt.Errorf("parse %s: %w", path, err)
	}
	return r, nil
}
