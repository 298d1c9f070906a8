// SPDX-License-Identifier: Apache-2.0

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

	"github.com/tandem-k8s/tandem/test/vm/scenarios"
)

//go:embed report.html
var page string

// write writes the result into a folder, as text and as a page.
func write(to string, rows []scenarios.Row) error {
	var text bytes.Buffer
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SET-UP\tSCENARIO\tKUBELET\tON ONE SWITCH\tTANDEM VERIFY\tSECONDS\tPROBLEM\tSAW")
	for _, r := range rows {
		fmt.Fprintln(w, strings.Join([]string{
			r.Setup, r.Scenario, r.Kubelet(), r.Pairs(), r.Verdict(), r.Seconds(), r.Problem, r.Saw(),
		}, "\t"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	parsed, err := template.New("report").Parse(page)
	if err != nil {
		return err
	}
	var html bytes.Buffer
	if err := parsed.Execute(&html, rows); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(to, "e2e.txt"), text.Bytes(), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(to, "e2e.html"), html.Bytes(), 0o644)
}
