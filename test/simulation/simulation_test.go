// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tandem-k8s/tandem/test/scale"
)

var (
	admissions = flag.Int("admissions", 4_000, "admissions of TestNode, over all seeds")
	firstSeed  = flag.Uint64("seed", 1, "first seed of TestNode")
	verbose    = flag.Bool("story", false, "write the plugins' logs to standard error")
)

// runSteps is the number of steps of a seed; about 55 of 100 are admissions.
const runSteps = 20 * (stormSteps + calmSteps)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// simulate runs a seed in a bubble.
func simulate(t *testing.T, seed uint64, options Options, steps int) *Report {
	t.Helper()
	var report *Report
	dir, err := os.MkdirTemp("", "n") // short, for socket paths
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	log := slog.New(slog.DiscardHandler)
	if *verbose {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	synctest.Test(t, func(t *testing.T) {
		var err error
		if report, err = Run(dir, seed, options, steps, log); err != nil {
			t.Fatal(err)
		}
	})
	return report
}

// total counts the work of all seeds of the process.
var total struct {
	sync.Mutex
	admissions int
	faults     map[string]int
}

func count(report *Report) {
	total.Lock()
	defer total.Unlock()
	total.admissions += report.Admissions
	if total.faults == nil {
		total.faults = map[string]int{}
	}
	for kind, n := range report.Faults {
		total.faults[kind] += n
	}
}

// TestNode: in every weather and in the calm after every storm, a node keeps its promises.
func TestNode(t *testing.T) {
	runs := scale.Rounds(max(1, *admissions/(runSteps*6/10)))
	began := time.Now()
	t.Cleanup(func() {
		var text strings.Builder
		for _, kind := range slices.Sorted(maps.Keys(total.faults)) {
			fmt.Fprintf(&text, "\n%6d  %s", total.faults[kind], kind)
		}
		t.Logf("%d admissions, %.0f a second; faults:%s", total.admissions,
			float64(total.admissions)/time.Since(began).Seconds(), &text)
	})
	for i := range runs {
		seed := *firstSeed + uint64(i)
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			report := simulate(t, seed, OptionsOf(seed), runSteps)
			count(report)
			if report.Violation != "" {
				t.Error(report)
			}
		})
	}
}

// TestSeedRepeatsItself: two runs of a seed are equal to the byte.
func TestSeedRepeatsItself(t *testing.T) {
	t.Parallel()
	for seed := range uint64(scale.Rounds(10)) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			first := simulate(t, seed, OptionsOf(seed), 100)
			again := simulate(t, seed, OptionsOf(seed), 100)
			for i, event := range first.Events {
				if i >= len(again.Events) || again.Events[i] != event {
					before := strings.Join(first.Events[max(0, i-10):i], "\n")
					t.Fatalf("two runs of a seed differ after\n%s\n\n%s\nand\n%s", before, event,
						again.Events[i:min(i+1, len(again.Events))])
				}
			}
			if again.String() != first.String() {
				t.Errorf("two runs of a seed differ:\n%s\n\n%s", first, again)
			}
		})
	}
}
