// SPDX-License-Identifier: Apache-2.0

// Command parity reads the output of "go test -json" and reports, for every row of checklist.csv that Tandem
// must or should fulfil, its tests and their results.
//
//	go test -json ./... | go run ./test/parity
//
// checklist.csv lists the behaviour of the stock device plugins, with sources. A row's name is its plugin and
// its feature, "amd/device-id-gpu". A test shows a row in one of two ways: by an attribute,
//
//	t.Attr("parity", "amd/device-id-gpu")
//
// or by the row's name in its own name: t.Run("amd/device-id-gpu", …). A row without a test may have its
// reason in reasons.csv, and a row with tests a remark; without a passing test the row is open in any case.
// The exit code is 1 if a row that Tandem must fulfil is open.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

func main() {
	format := flag.String("o", "table", "output format: table or json")
	flag.Parse()
	if err := report(os.Stdout, os.Stdin, *format); err != nil {
		fmt.Fprintln(os.Stderr, "parity:", err)
		os.Exit(1)
	}
}

// report writes the report on the test results in in. It returns an error if a required row is open.
func report(w io.Writer, in io.Reader, format string) error {
	write, ok := map[string]func(io.Writer, []verdict) error{"table": writeTable, "json": writeJSON}[format]
	if !ok {
		return fmt.Errorf("-o %q: want table or json", format)
	}
	rows, err := readChecklist()
	if err != nil {
		return err
	}
	tests, err := readTests(in)
	if err != nil {
		return err
	}
	if len(tests) == 0 {
		return errors.New(`no test result on standard input; use "make parity"`)
	}
	if names := misnamed(rows, tests); len(names) > 0 {
		return fmt.Errorf("there is no such row in checklist.csv: %s", strings.Join(names, ", "))
	}
	verdicts := judge(rows, tests)
	if err := write(w, verdicts); err != nil {
		return err
	}
	open := 0
	for _, v := range verdicts {
		if v.Priority == must && v.State != pass {
			open++
		}
	}
	if open > 0 {
		return fmt.Errorf("%d rows that Tandem must fulfil are open", open)
	}
	return nil
}
