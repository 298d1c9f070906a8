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
		j.addSample(counted("link_downed", 7), now)
		if got := j.addSample(counted("link_downed", 7), now.Add(2*time.Minute)); got.State != Good {
			t.Errorf("above %d: %v without an increase", above, got.State)
		}
		if got := j.addSample(counted("link_downed", 107), now.Add(4*time.Minute)); got.State != want {
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

// TestQuietAtZero: a counter at zero is not at its maximum: a function whose counter is reset to zero, or
// that has another port without an error, is good again after the quiet time.
func TestQuietAtZero(t *testing.T) {
	const other = "infiniband/mlx5_0/ports/2/hw_counters/local_ack_timeout_err"
	for name, c := range map[string]struct {
		before, burst, after map[string]string
	}{
		"a counter of the port": {
			nil, map[string]string{hardware + "local_ack_timeout_err": "100"},
			map[string]string{hardware + "local_ack_timeout_err": "0"},
		},
		"a counter of the netdev": {
			nil, map[string]string{"net/eth0/carrier_changes": "20"},
			map[string]string{"net/eth0/carrier_changes": "0"},
		},
		"a counter of the PCI function": {
			nil, map[string]string{"aer_dev_correctable": "RxErr 200\nTOTAL_ERR_COR 200"},
			map[string]string{"aer_dev_correctable": "RxErr 0\nTOTAL_ERR_COR 0"},
		},
		"another port": {
			map[string]string{other: "0"}, map[string]string{hardware + "local_ack_timeout_err": "100"}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, pf)
			set := func(files map[string]string) {
				for file, content := range files {
					n.set(file, content)
				}
			}
			set(c.before)
			monitor := newClock(n, Default(), pf)
			monitor.after(t, time.Minute)
			set(c.burst)
			if v := monitor.after(t, monitor.config.Interval); v.State != Degraded {
				t.Fatalf("at the burst of errors: %v", v)
			}
			set(c.after)
			if v := monitor.after(t, 5*time.Minute); v != (Verdict{}) {
				t.Errorf("five minutes later: %v", v)
			}
		})
	}
}
