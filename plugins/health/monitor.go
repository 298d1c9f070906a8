// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tandem-k8s/tandem/topology"
)

// Rule limits the increase of a counter: if the counter increases by more than Above within Window, the
// function has the state.
type Rule struct {
	State   State
	Counter string // name of the file, or of the AER severity: see counterFiles
	Above   uint64
	Window  time.Duration
}

// reason returns the cause for people.
func (r Rule) reason() string {
	if r.Above == 0 {
		return r.Counter + " increased"
	}
	return fmt.Sprintf("%s increased by more than %d in %s", r.Counter, r.Above, short(r.Window))
}

// short returns a duration without zero parts: "1h" instead of "1h0m0s".
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// window is the time within which rules by rate count increases. Such a rule is the rate times the window.
const window = 10 * time.Second

// defaultRules are NVSentinel's documented thresholds of port and hardware counters, and thresholds for PCI
// Express errors (Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats): a corrected error costs a
// repetition, a nonfatal one a transaction, and a fatal one the link.
var defaultRules = []Rule{
	{Failed, "link_downed", 0, window},
	{Failed, "excessive_buffer_overrun_errors", 0, window},
	{Failed, "local_link_integrity_errors", 0, window},
	{Failed, "rnr_nak_retry_err", 0, window},
	{Failed, "symbol_error", 120, time.Hour},
	{Failed, "aer_fatal", 0, window},
	{Degraded, "symbol_error", 100, window},
	{Degraded, "link_error_recovery", 5, time.Minute},
	{Degraded, "port_rcv_errors", 100, window},
	{Degraded, "local_ack_timeout_err", 10, window},
	{Degraded, "port_xmit_discards", 1000, window},
	{Degraded, "roce_slow_restart", 100, window},
	{Degraded, "carrier_changes", 1, time.Minute},
	{Degraded, "aer_nonfatal", 0, window},
	{Degraded, "aer_correctable", 100, window},
}

// Config is what a [Monitor] reads and how it judges. The zero Config reads nothing. Config is a pflag.Value.
type Config struct {
	Interval time.Duration // between two reads
	Quiet    time.Duration // without a cause, before a function gets better
	Port     bool          // judge ports without a link
	Link     bool          // judge PCI Express links below their maximum
	Rules    []Rule
}

// Default returns the default configuration.
func Default() Config {
	c := none()
	for _, cause := range Causes {
		c.judge(cause)
	}
	return c
}

// none returns the configuration without causes.
func none() Config { return Config{Interval: 2 * time.Second, Quiet: time.Minute} }

// Values of the flag besides a list of [Causes].
const (
	On  = "on"
	Off = "off"
)

// Causes are the kinds of causes of a state: ports without a link, PCI Express links below their maximum, and
// counters above their limits.
var Causes = []string{"port", "link", "counters"}

// judge adds a cause. It returns false for an unknown one.
func (c *Config) judge(cause string) bool {
	switch cause {
	case "port":
		c.Port = true
	case "link":
		c.Link = true
	case "counters":
		c.Rules = slices.Clone(defaultRules)
	default:
		return false
	}
	return true
}

// has reports for each of the causes whether it is judged.
func (c *Config) has() []bool { return []bool{c.Port, c.Link, c.Rules != nil} }

func (c *Config) isOff() bool { return c.Interval == 0 }

// Set changes the configuration to on, off, or a comma-separated list of causes.
func (c *Config) Set(text string) error {
	switch text {
	case "", On:
		*c = Default()
		return nil
	case Off:
		*c = Config{}
		return nil
	}
	next := none()
	for cause := range strings.SplitSeq(text, ",") {
		if !next.judge(strings.TrimSpace(cause)) {
			return fmt.Errorf("%q is none of %s, %s, and %s with commas between", cause, On, Off,
				strings.Join(Causes, ", "))
		}
	}
	*c = next
	return nil
}

// String returns the value of the flag.
func (c *Config) String() string {
	if c.isOff() {
		return Off
	}
	var judged []string
	for i, has := range c.has() {
		if has {
			judged = append(judged, Causes[i])
		}
	}
	if len(judged) == len(Causes) {
		return On
	}
	return strings.Join(judged, ",")
}

// Type implements pflag.Value.
func (*Config) Type() string { return "on|off|CAUSE,…" }

// Monitor keeps the verdicts of functions. A nil Monitor knows none: every function is good.
type Monitor struct {
	config Config
	sys    fs.FS

	looking sync.Mutex // held during a look
	watched map[topology.Address]*watched

	mu        sync.Mutex
	functions map[topology.Address]bool // to be watched; true for GPUs
	again     bool                      // the machine may have changed: the files are to be found again
	verdicts  verdicts
	late      bool // Look did not wait for the verdicts
}

// watched is a function with its files and its judge.
type watched struct {
	source *source // nil if the files are to be found
	judge  *judge
	found  time.Time // when the files were found
}

// relook is the time after which the files of a function are found again without a call of Watch: new ones
// may exist.
const relook = time.Minute

// New returns a monitor of the machine below a sysfs root; nil if the configuration is off.
func New(config Config, sys fs.FS) *Monitor {
	if config.isOff() {
		return nil
	}
	return &Monitor{config: config, sys: sys, watched: map[topology.Address]*watched{}}
}

// Watch replaces the watched functions; the value is true for GPUs. The next look finds the files of all
// functions again, because a caller calls Watch after a change of the machine, such as a new netdev.
func (m *Monitor) Watch(functions map[topology.Address]bool) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.functions, m.again = maps.Clone(functions), true
}

// patience is the maximum time that a daemon's start waits for a device that does not answer.
const patience = time.Second

// Look reads the functions once, so that a daemon's first list of devices has their health; to be called
// before Run. If a device does not answer, the verdicts come with Run.
func (m *Monitor) Look() {
	if m == nil {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.look(time.Now())
	}()
	select {
	case <-done:
	case <-time.After(patience):
		m.mu.Lock()
		defer m.mu.Unlock()
		m.late = true
	}
}

// wasLate reports, once, whether nobody has been told of the verdicts of Look.
func (m *Monitor) wasLate() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	late := m.late
	m.late = false
	return late
}

// Verdict returns the verdict of a function.
func (m *Monitor) Verdict(a topology.Address) Verdict {
	if m == nil {
		return Verdict{}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.verdicts[a]
}

// Run reads the functions periodically until ctx is done, and calls changed after a change of a verdict.
func (m *Monitor) Run(ctx context.Context, changed func()) error {
	if m == nil {
		return nil
	}
	defer func() {
		m.looking.Lock()
		defer m.looking.Unlock()
		m.forget(nil)
	}()
	ticker := time.NewTicker(m.config.Interval)
	defer ticker.Stop()
	for {
		if changes := m.look(time.Now()); m.wasLate() || changes {
			changed()
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// look reads all functions once and reports whether a verdict has changed.
func (m *Monitor) look(now time.Time) bool {
	m.looking.Lock()
	defer m.looking.Unlock()
	m.mu.Lock()
	functions, again := m.functions, m.again
	m.again = false
	m.mu.Unlock()
	found := verdicts{}
	m.forget(functions)
	for a, gpu := range functions {
		w := m.watched[a]
		if w == nil {
			w = &watched{judge: newJudge(&m.config, gpu)}
			m.watched[a] = w
		}
		if again {
			w.close()
		}
		if v := w.look(m.sys, a, now); v != (Verdict{}) {
			found[a] = v
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	same := maps.Equal(found, m.verdicts)
	m.verdicts = found
	return !same
}

// forget ends the watch of all functions except some.
func (m *Monitor) forget(except map[topology.Address]bool) {
	for a, w := range m.watched {
		if _, wanted := except[a]; !wanted {
			w.close()
			delete(m.watched, a)
		}
	}
}

// look reads a function once.
func (w *watched) look(sys fs.FS, a topology.Address, now time.Time) Verdict {
	if w.source == nil {
		w.source, w.found = find(sys, a, w.judge.config.Rules), now
	}
	sample, whole := w.source.read()
	if !whole || now.Sub(w.found) >= relook {
		w.close()
	}
	return w.judge.look(sample, now)
}

func (w *watched) close() {
	if w.source != nil {
		w.source.close()
		w.source = nil
	}
}
