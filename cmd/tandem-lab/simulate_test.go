// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"testing"

	"github.com/tandem-k8s/tandem/test/golden"
	"github.com/tandem-k8s/tandem/test/simulate"
)

// TestScripts: what tandem-lab simulate prints.
func TestScripts(t *testing.T) {
	t.Parallel()
	golden.Script{
		Run: func(args []string) (code int, stdout, stderr string) {
			if args[0] == "few" { // a fast simulation
				args = append([]string{
					"", "simulate", "--seeds=2", "--arrivals=60", "--warmup=20", "--load=60", "--ways=stock,tandem",
				}, args[1:]...)
			}
			return run(args[1:]...)
		},
		Word: recorded,
	}.Check(t, "testdata/simulate.txt")
}

func TestSimulateJSON(t *testing.T) {
	var report simulate.Report
	text := succeed(t, "simulate", "--seeds=2", "--arrivals=60", "--warmup=20", "--load=60", "-o=json",
		"--seed=3")
	if err := json.Unmarshal([]byte(text), &report); err != nil {
		t.Fatal(err)
	}
	if report.Seed != 3 || len(report.Loads) != 1 || len(report.Loads[0].Ways) != 4 ||
		report.Loads[0].Ways[0].Figures.PIX == nil {
		t.Errorf("%+v", report)
	}
}
