// SPDX-License-Identifier: Apache-2.0

package health

import (
	"fmt"
	"os"
	"regexp"
	"testing"
	"time"
)

// TestDocument: the table of counters in docs/health.md has the rules.
func TestDocument(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/health.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := 0
	for _, row := range regexp.MustCompile(`(?m)^\| (?:failed|degraded) \| (?:any|more).* \| (.*) \|$`).
		FindAllSubmatch(page, -1) {
		documented += len(regexp.MustCompile("`\\w+`").FindAll(row[1], -1))
	}
	if documented != len(defaultRules) {
		t.Errorf("%d rules are documented, want %d", documented, len(defaultRules))
	}
	for _, r := range defaultRules {
		increase := fmt.Sprintf("more than %d in %s", r.Above, shortDuration(r.Window))
		if r.Above == 0 {
			increase = "any in " + shortDuration(r.Window)
		}
		row := fmt.Sprintf("(?m)^\\| %s \\| %s \\| .*`%s`", r.State, increase, r.Counter)
		if !regexp.MustCompile(row).Match(page) {
			t.Errorf("no row for %s, %s, %s", r.State, increase, r.Counter)
		}
	}
}

// counted is a sample of one counter.
func counted(name string, value uint64) reading {
	return reading{Counters: map[counterKey]uint64{{Name: name, File: "ports/1/counters/" + name}: value}}
}

// Values further apart than the window of a rule that allows an increase tell nothing of the window; a rule
// that allows none allows none in any time.
func TestValuesFurtherApartThanTheWindow(t *testing.T) {
	t.Parallel()
	for above, want := range map[uint64]State{0: Failed, 10: Good} {
		limit := rule{Counter: "link_downed", Above: above, Window: time.Minute, State: Failed}
		j := newJudge(&Config{Rules: []rule{limit}, Quiet: time.Minute}, false)
		now := time.Now()
		j.addSample(counted("link_downed", 0), now)
		if got := j.addSample(counted("link_downed", 100), now.Add(2*time.Minute)); got.State != want {
			t.Errorf("above %d: %v, want %v", above, got.State, want)
		}
	}
}

// A counter that is absent for a while begins anew: its increase meanwhile has no time.
func TestAbsentCounterBeginsAnew(t *testing.T) {
	t.Parallel()
	for absent, want := range map[bool]State{false: Failed, true: Good} {
		limit := rule{Counter: "link_downed", Window: time.Minute, State: Failed}
		j := newJudge(&Config{Rules: []rule{limit}, Quiet: time.Minute}, false)
		now := time.Now()
		j.addSample(counted("link_downed", 1), now)
		if absent {
			j.addSample(reading{}, now.Add(time.Second))
		}
		if got := j.addSample(counted("link_downed", 2), now.Add(2*time.Second)); got.State != want {
			t.Errorf("absent %t: %v, want %v", absent, got.State, want)
		}
	}
}

// A counter at its maximum tells nothing new: a degraded function stays degraded until the counter is reset,
// and a failed one works again.
func TestCounterAtItsMaximum(t *testing.T) {
	t.Parallel()
	for state, want := range map[State]State{Degraded: Degraded, Failed: Good} {
		limit := rule{Counter: "symbol_error", Window: time.Minute, State: state}
		j := newJudge(&Config{Rules: []rule{limit}, Quiet: time.Minute}, false)
		now, most := time.Now(), full["symbol_error"]
		j.addSample(counted("symbol_error", most-1), now)
		var got Verdict
		for range 10 {
			got = j.addSample(counted("symbol_error", most), now)
			now = now.Add(30 * time.Second)
		}
		if got.State != want {
			t.Errorf("rule of state %v: %v, want %v", state, got.State, want)
		}
	}
}
