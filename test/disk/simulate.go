// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/test/scale"
)

var (
	minFaults = flag.Int("disk.faults", 50, "faults at each failpoint of a simulation of the disk")
	firstSeed = flag.Uint64("disk.seed", 1, "first seed of a simulation of the disk")
	report    = flag.String("disk.report", "", "a simulation of the disk appends its numbers to this file")
)

// batch is the number of seeds that run at the same time.
const batch = 4

// Steps of a write, for the failpoints of a simulation.
var (
	Write   = []string{"open folder", "create", "write", "chmod", "close", "rename", "remove"}
	Durable = append([]string{"sync", "sync folder"}, Write...)
)

// Points returns the failpoints of a kind of files.
func Points(kind string, steps []string) (points []string) {
	for _, step := range steps {
		points = append(points, kind+": "+step)
	}
	return points
}

// Simulate runs a simulation with one seed after the other until each failpoint has had enough faults, and
// logs the numbers. A simulation that fails logs its seed and its faults.
func Simulate(t *testing.T, points []string, run func(t *testing.T, d *Disk, random *rand.Rand)) {
	t.Helper()
	sums, began, seed := Counts{}, time.Now(), *firstSeed
	for _, point := range points {
		sums.of(point)
	}
	minimum := scale.Rounds(*minFaults)
	for len(sums.Rare(minimum)) > 0 && !t.Failed() {
		if seed-*firstSeed > uint64(100*minimum) {
			t.Fatalf("too few faults at %q\n%s", sums.Rare(minimum), sums)
		}
		sums.simulate(t, seed, run)
		seed += batch
	}
	for point := range sums {
		if !slices.Contains(points, point) {
			t.Errorf("unknown failpoint %q", point)
		}
	}
	table := fmt.Sprintf("%d seeds in %s\n%s", seed-*firstSeed, time.Since(began).Round(time.Second), sums)
	t.Log(table)
	if err := appendTo(*report, table); err != nil {
		t.Error(err)
	}
}

// appendTo appends a text to a file, unless its name is empty.
func appendTo(name, text string) error {
	if name == "" {
		return nil
	}
	opened, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = opened.WriteString(text)
	return errors.Join(err, opened.Close())
}

// simulate runs a batch of seeds, and adds their numbers.
func (c Counts) simulate(t *testing.T, first uint64, run func(t *testing.T, d *Disk, random *rand.Rand)) {
	t.Helper()
	var mu sync.Mutex
	t.Run("batch", func(t *testing.T) {
		for seed := first; seed < first+batch; seed++ {
			t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
				t.Parallel()
				d := New(seed)
				defer func() {
					mu.Lock()
					defer mu.Unlock()
					c.Add(d.Counts())
					if t.Failed() {
						t.Logf("-disk.seed=%d:\n%s", seed, strings.Join(d.Story(), "\n"))
					}
				}()
				run(t, d, rand.New(rand.NewPCG(seed, 0)))
			})
		}
	})
}
