// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Case is a fault at a step of an operation.
type Case struct {
	*Disk
	Power bool // the machine loses power afterwards
	Quiet bool // a killed process goes on without a disk, for operations in other goroutines
	step  int
	fault Fault
	last  bool
}

// Each runs a test for each fault at each step of an operation, once with the end of the process at most, and
// once with a power failure after it. The test must call Case.During once.
func Each(t *testing.T, test func(t *testing.T, c *Case)) {
	t.Helper()
	for _, power := range []bool{false, true} {
		for _, fault := range Faults {
			t.Run(name(fault, power), func(t *testing.T) {
				for step := 1; ; step++ {
					c := &Case{Disk: New(uint64(step)), Power: power, step: step, fault: fault}
					test(t, c)
					if t.Failed() {
						t.Fatalf("at step %d: %q", step, c.Story())
					}
					if c.last {
						return
					}
				}
			})
		}
	}
}

func name(fault Fault, power bool) string {
	if power {
		return fmt.Sprint(fault, ", power failure")
	}
	return fault.String()
}

// During runs the operation, and returns the fault that happened. Files in memory are lost with the power.
func (c *Case) During(t *testing.T, do func(), inMemory ...string) Fault {
	t.Helper()
	struck := c.with(plan{steps: c.step, fault: c.fault, panics: !c.Quiet}, do)
	c.last = struck == Nothing
	if c.Power {
		if err := c.PowerFailure(inMemory...); err != nil {
			t.Fatal(err)
		}
	}
	return struck
}

// Age makes all files of a folder an hour old.
func Age(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	past := time.Now().Add(-time.Hour)
	for _, entry := range entries {
		if err := os.Chtimes(filepath.Join(dir, entry.Name()), past, past); err != nil {
			t.Fatal(err)
		}
	}
}

// Leftovers returns the temporary files in a folder.
func Leftovers(dir string) []string {
	left, _ := filepath.Glob(filepath.Join(dir, ".tandem-*"))
	return left
}

// Restarted reports whether the process of a case has ended.
func (c *Case) Restarted(struck Fault) bool { return c.Power || struck.Kills() }
