// SPDX-License-Identifier: Apache-2.0

package health

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// rule limits the increase of a counter: if the counter increases by more than Above within Window, the
// function has the state.
type rule struct {
	State   State
	Counter string // name of the file, or of the AER severity: see counterFiles
	Above   uint64
	Window  time.Duration
}

// describeCause returns the cause for people.
func (r rule) describeCause() string {
	if r.Above == 0 {
		return r.Counter + " increased"
	}
	return fmt.Sprintf("%s increased by more than %d in %s", r.Counter, r.Above, shortDuration(r.Window))
}

// shortDuration returns a duration without zero parts: "1h" instead of "1h0m0s".
func shortDuration(d time.Duration) string {
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
var defaultRules = []rule{
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
	Judged   []string      // some of Causes
	Rules    []rule        // of the cause counters
}

// Values of the flag besides a list of [Causes].
const (
	On  = "on"
	Off = "off"
)

// Kinds of causes.
const (
	causePort     = "port"     // ports without a link
	causeLink     = "link"     // PCI Express links below their maximum
	causeCounters = "counters" // counters above their limits
)

// Causes are the kinds of causes of a state.
var Causes = []string{causePort, causeLink, causeCounters}

// Default returns the default configuration.
func Default() Config { return newConfig(Causes) }

func newConfig(judged []string) Config {
	c := Config{Interval: 2 * time.Second, Quiet: time.Minute, Judged: judged}
	if c.judges(causeCounters) {
		c.Rules = slices.Clone(defaultRules)
	}
	return c
}

// judges reports whether a kind of causes counts.
func (c *Config) judges(cause string) bool { return slices.Contains(c.Judged, cause) }

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
	var judged []string
	for cause := range strings.SplitSeq(text, ",") {
		if !slices.Contains(Causes, strings.TrimSpace(cause)) {
			return fmt.Errorf("%q is none of %s, %s, and %s with commas between", cause, On, Off,
				strings.Join(Causes, ", "))
		}
		judged = append(judged, strings.TrimSpace(cause))
	}
	*c = newConfig(judged)
	return nil
}

// String returns the value of the flag.
func (c *Config) String() string {
	judged := slices.DeleteFunc(slices.Clone(Causes), func(cause string) bool { return !c.judges(cause) })
	switch {
	case c.isOff():
		return Off
	case len(judged) == len(Causes):
		return On
	default:
		return strings.Join(judged, ",")
	}
}

// Type implements pflag.Value.
func (*Config) Type() string { return "on|off|CAUSE,…" }
