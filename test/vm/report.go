package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"
)

// row is one line of the result.
type row struct {
	setup, scenario string
	outcome         *outcome // of a pod; nil for what is no pod
	note            string
	took            time.Duration
	problem         string // what is wrong; "" for nothing
}

// Setup, Scenario and the following are the columns.
func (r row) Setup() string    { return r.setup }
func (r row) Scenario() string { return r.scenario }
func (r row) Problem() string  { return r.problem }

// Kubelet is what the kubelet did.
func (r row) Kubelet() string {
	switch {
	case r.outcome == nil:
		return ""
	case r.outcome.reason != "":
		return "refused: " + r.outcome.reason
	default:
		return "admitted"
	}
}

// Saw is what the containers saw, and what is to be said beside it.
func (r row) Saw() string {
	var parts []string
	if r.outcome != nil {
		for _, v := range r.outcome.containers {
			parts = append(parts, addresses("GPUs", v.gpus)+addresses("VFs", v.vfs))
		}
	}
	if r.outcome != nil && r.outcome.reason != "" {
		parts = append(parts, strings.TrimSpace(r.outcome.message))
	}
	return join(append(parts, r.note)...)
}

// addresses lists the last elements of paths.
func addresses(what string, paths []string) string {
	if len(paths) == 0 {
		return ""
	}
	list := []string{"", what}
	for _, path := range paths {
		list = append(list, strings.TrimPrefix(filepath.Base(path), "0000:"))
	}
	return strings.Join(list, " ")
}

// Pairs is how many of the pairs that a container could have are on one switch.
func (r row) Pairs() string {
	var list []string
	if r.outcome != nil {
		for _, v := range r.outcome.containers {
			if most := min(len(v.gpus), len(v.vfs)); most > 0 {
				list = append(list, fmt.Sprintf("%d/%d", v.pairs(), most))
			}
		}
	}
	return strings.Join(list, " ")
}

// Verdict is what tandem verify said.
func (r row) Verdict() string {
	if r.outcome == nil {
		return ""
	}
	var list []string
	for _, v := range r.outcome.containers {
		switch {
		case len(v.gpus) == 0 || len(v.vfs) == 0:
		case v.verified:
			list = append(list, "verified")
		default:
			list = append(list, "not verified")
		}
	}
	return strings.Join(list, " ")
}

// Seconds is how long it took.
func (r row) Seconds() string {
	took := r.took
	if r.outcome != nil {
		took = r.outcome.took
	}
	return fmt.Sprintf("%.1f", took.Seconds())
}

//go:embed report.html
var page string

// write writes the result as text and as a page.
func (t *tester) write() error {
	var text bytes.Buffer
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SET-UP\tSCENARIO\tKUBELET\tON ONE SWITCH\tTANDEM VERIFY\tSECONDS\tPROBLEM\tSAW")
	for _, r := range t.rows {
		fmt.Fprintln(w, strings.Join([]string{r.setup, r.scenario, r.Kubelet(), r.Pairs(), r.Verdict(), r.Seconds(), r.problem, r.Saw()}, "\t"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	parsed, err := template.New("report").Parse(page)
	if err != nil {
		return err
	}
	var html bytes.Buffer
	if err := parsed.Execute(&html, t.rows); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(t.bin, "e2e.txt"), text.Bytes(), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(t.bin, "e2e.html"), html.Bytes(), 0o644)
}
