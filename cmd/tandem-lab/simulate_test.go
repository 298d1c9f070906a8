// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"io"
	"testing"
	"time"

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
	ready(t, json.Unmarshal([]byte(text), &report))
	if report.Seed != 3 || len(report.Loads) != 1 || len(report.Loads[0].Ways) != 4 ||
		report.Loads[0].Ways[0].Figures.PIX == nil {
		t.Errorf("%+v", report)
	}
}

// TestProgress: without a terminal every tick is a line, and none follows the end.
func TestProgress(t *testing.T) {
	t.Parallel()
	var progress func(done, all int)
	out, in := io.Pipe()
	ticks := make(chan time.Time)
	start := time.Now()
	done := writeProgress(in, &progress, ticks)
	lines := bufio.NewScanner(out)
	for i, want := range []string{"... 20 s: no trial has ended yet", "... 40 s: 1 of 4 trials"} {
		if i == 1 {
			progress(1, 4)
		}
		ticks <- start.Add(time.Duration(i+1) * progressEvery)
		if !lines.Scan() || lines.Text() != want {
			t.Errorf("%q, want %q", lines.Text(), want)
		}
	}
	done()
	select {
	case ticks <- time.Now():
		t.Error("a tick after the end is received")
	default:
	}
}
