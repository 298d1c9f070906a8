// SPDX-License-Identifier: Apache-2.0

package seeds

import (
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-k8s/tandem/test/scale"
)

// defaultSeed is the first seed of a simulation by default.
const defaultSeed = 1

var (
	admissions = flag.Int("admissions", 0, "admissions of a simulation, over all seeds; 0 for its default")
	firstSeed  = flag.Uint64("seed", defaultSeed, "first seed of a simulation")
	verbose    = flag.Bool("story", false, "write the logs of a simulation to standard error")
)

// Log returns the log of a simulation's product code.
func Log() *slog.Logger {
	if *verbose {
		return slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	return slog.New(slog.DiscardHandler)
}

// memory is a folder in memory on Linux. On a disk a simulation waits for the disk most of its time.
const memory = "/dev/shm"

// seedFiles is more than the files of a seed take, in bytes.
const seedFiles = 16 << 20

// parent returns the folder for the directories of seeds: the user's TMPDIR if set, else a folder in memory
// with room for all seeds that run at the same time, else "", the system's.
func parent() string {
	var at syscall.Statfs_t
	if os.Getenv("TMPDIR") != "" || syscall.Statfs(memory, &at) != nil {
		return ""
	}
	if free := at.Bavail * uint64(at.Bsize); free < seedFiles*uint64(runtime.GOMAXPROCS(0)) {
		return ""
	}
	return memory
}

// Bubble runs a function with an empty directory, in a bubble of package synctest. The name of the directory
// is short, for socket paths.
func Bubble(t *testing.T, run func(dir string) error) {
	t.Helper()
	dir, err := os.MkdirTemp(parent(), "n")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	synctest.Test(t, func(t *testing.T) {
		if err := run(dir); err != nil {
			t.Fatal(err)
		}
	})
}

// Condition is a circumstance that comes about once in a cycle of a simulation, in turn with the others.
type Condition struct {
	Name   string
	Within int // seeds of a run, of which one has it; 0 for two
}

// Deal returns the condition of a cycle of a seed: the one with a name or, without such a condition, each in
// turn.
func Deal[C any](all []C, of func(C) Condition, only string, seed uint64, cycle int) C {
	for _, c := range all {
		if of(c).Name == only {
			return c
		}
	}
	return all[(seed+uint64(cycle))%uint64(len(all))]
}

// Each runs seeds, each with a number of admissions, until all admissions have happened, and logs the
// numbers. Of enough default seeds each of the conditions has to come about; what others are dealt may not.
func Each(
	t *testing.T, all, each int, conditions []Condition, run func(t *testing.T, seed uint64) *Report,
) {
	t.Helper()
	if *admissions > 0 {
		all = *admissions
	}
	sum := sum{faults: map[string]int{}, began: time.Now()}
	rounds := scale.Rounds(max(1, all/each))
	t.Cleanup(func() {
		t.Log(sum.String())
		for _, c := range conditions {
			if *firstSeed == defaultSeed && rounds >= max(2, c.Within) && !t.Failed() && sum.faults[c.Name] == 0 {
				t.Errorf("in no seed %s", c.Name)
			}
		}
	})
	for i := range rounds {
		seed := *firstSeed + uint64(i)
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			report := run(t, seed)
			sum.add(report)
			if report.Violation != "" {
				t.Error(report)
			}
		})
	}
}

// sum counts the work of all seeds.
type sum struct {
	began time.Time

	mu         sync.Mutex
	admissions int
	faults     map[string]int
}

func (s *sum) add(report *Report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.admissions += report.Admissions
	for kind, n := range report.Faults {
		s.faults[kind] += n
	}
}

// String returns the numbers for people.
func (s *sum) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var text strings.Builder
	fmt.Fprintf(&text, "%d admissions, %.0f a second; faults:", s.admissions,
		float64(s.admissions)/time.Since(s.began).Seconds())
	for _, kind := range slices.Sorted(maps.Keys(s.faults)) {
		fmt.Fprintf(&text, "\n%6d  %s", s.faults[kind], kind)
	}
	return text.String()
}

// Samples returns the number of seeds that a test of the simulation itself runs: all, or one with -short.
func Samples(all uint64) uint64 {
	if testing.Short() {
		return 1
	}
	return all
}

// Repeat runs a number of seeds, each twice, and compares both runs to the byte.
func Repeat(t *testing.T, all uint64, run func(t *testing.T, seed uint64) *Report) {
	t.Helper()
	for seed := range Samples(all) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			first, again := run(t, seed), run(t, seed)
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
