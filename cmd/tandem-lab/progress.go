// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
)

// progressEvery is the interval between two lines about a long simulation.
const progressEvery = 20 * time.Second

// showProgress shows the progress of a simulation until done is called: a bar on a terminal, elsewhere a line
// every 20 seconds. It sets the function that receives the number of finished trials.
func showProgress(w io.Writer, progress *func(done, all int)) (done func()) {
	if out, ok := w.(*cli.PrintableWriter); ok {
		if _, ok := out.Terminal(); ok {
			return drawProgress(out, progress)
		}
	}
	ticker := time.NewTicker(progressEvery)
	end := writeProgress(w, progress, ticker.C)
	return func() {
		ticker.Stop()
		end()
	}
}

// drawProgress draws a bar, from the start on: trials may take long. done removes the bar.
func drawProgress(terminal *cli.PrintableWriter, progress *func(done, all int)) (done func()) {
	const width = 40
	shown := -1
	draw := func(done, all int) {
		if percent := 100 * done / all; percent != shown {
			shown = percent
			filled := width * done / all
			terminal.Control("\r")
			fmt.Fprintf(terminal, "%s%s %3d %%", strings.Repeat("█", filled), strings.Repeat("░", width-filled),
				percent)
		}
	}
	draw(0, 1)
	*progress = draw
	return func() { terminal.Control("\r" + strings.Repeat(" ", width+6) + "\r") }
}

// writeProgress writes a line at every tick.
func writeProgress(w io.Writer, progress *func(done, all int), ticks <-chan time.Time) (done func()) {
	var latest atomic.Value
	latest.Store("no trial has ended yet")
	*progress = func(done, all int) { latest.Store(fmt.Sprintf("%d of %d trials", done, all)) }
	start, end := time.Now(), make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for {
			select {
			case <-end:
				return
			case now := <-ticks:
				fmt.Fprintf(w, "... %.0f s: %s\n", now.Sub(start).Seconds(), latest.Load())
			}
		}
	})
	return func() {
		close(end)
		writer.Wait()
	}
}
