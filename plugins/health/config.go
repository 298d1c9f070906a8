// SPDX-License-Identifier: Apache-2.0

package health

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
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

func (r Rule) String() string {
	return fmt.Sprintf("%s.%s=%d/%s", r.State, r.Counter, r.Above, short(r.Window))
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
	return Config{
		Interval: 2 * time.Second, Quiet: time.Minute, Port: true, Link: true, Rules: slices.Clone(defaultRules),
	}
}

// off disables a key, or all.
const off = "off"

func (c *Config) isOff() bool { return c.Interval == 0 }

// Set changes the configuration by a comma-separated list of keys with values.
func (c *Config) Set(text string) error {
	if text == off {
		*c = Config{}
		return nil
	}
	next := Default()
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if part == "" || part == "on" {
			continue
		}
		key, value, ok := strings.Cut(part, "=")
		switch {
		case part == off:
			return fmt.Errorf("%s excludes all other keys", off)
		case !ok:
			return fmt.Errorf("%q is none of on, off, KEY=VALUE", part)
		}
		if err := next.set(key, value); err != nil {
			return fmt.Errorf("key %s: %w", key, err)
		}
	}
	if next.Quiet < next.Interval {
		return fmt.Errorf("quiet %s is shorter than interval %s", next.Quiet, next.Interval)
	}
	for _, r := range next.Rules {
		if r.Window < 2*next.Interval {
			return fmt.Errorf("rule %s: the window is shorter than two intervals of %s", r, next.Interval)
		}
	}
	*c = next
	return nil
}

func (c *Config) set(key, value string) (err error) {
	switch key {
	case "interval":
		c.Interval, err = duration(value, time.Second, time.Minute)
	case "quiet":
		c.Quiet, err = duration(value, time.Minute, 24*time.Hour)
	case "port":
		c.Port, err = enabled(value)
	case "link":
		c.Link, err = enabled(value)
	default:
		err = c.setRule(key, value)
	}
	return err
}

// setRule changes or removes a rule: the key is STATE.COUNTER, the value N/WINDOW or off.
func (c *Config) setRule(key, value string) error {
	state, counter, _ := strings.Cut(key, ".")
	i := slices.IndexFunc(c.Rules, func(r Rule) bool {
		return r.State.String() == state && r.Counter == counter
	})
	if i < 0 {
		return fmt.Errorf("unknown; keys are %s", strings.Join(keys(), ", "))
	}
	if value == off {
		c.Rules = slices.Delete(c.Rules, i, i+1)
		return nil
	}
	number, within, ok := strings.Cut(value, "/")
	above, err := strconv.ParseUint(number, 10, 64)
	if !ok || err != nil {
		return fmt.Errorf("%q is neither off nor NUMBER/DURATION, such as 120/1h", value)
	}
	c.Rules[i].Above = above
	c.Rules[i].Window, err = duration(within, time.Second, 24*time.Hour)
	return err
}

// keys returns all keys of the configuration.
func keys() []string {
	list := []string{"interval", "quiet", "port", "link"}
	for _, r := range defaultRules {
		list = append(list, r.State.String()+"."+r.Counter)
	}
	return list
}

func duration(text string, least, most time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q is no duration, such as 90s", text)
	}
	if d < least || d > most {
		return 0, fmt.Errorf("%s is not between %s and %s", text, short(least), short(most))
	}
	return d, nil
}

func enabled(text string) (bool, error) {
	if text != "on" && text != off {
		return false, fmt.Errorf("%q is neither on nor off", text)
	}
	return text == "on", nil
}

// String returns the keys that differ from the default.
func (c *Config) String() string {
	if c.isOff() {
		return off
	}
	var parts []string
	preset := Default()
	add := func(key, value, preset string) {
		if value != preset {
			parts = append(parts, key+"="+value)
		}
	}
	add("interval", short(c.Interval), short(preset.Interval))
	add("quiet", short(c.Quiet), short(preset.Quiet))
	add("port", word(c.Port), word(preset.Port))
	add("link", word(c.Link), word(preset.Link))
	for _, r := range preset.Rules {
		key, value, _ := strings.Cut(r.String(), "=")
		add(key, c.ruleText(key), value)
	}
	if parts == nil {
		return "on"
	}
	return strings.Join(parts, ",")
}

// ruleText returns the value of the rule of a key.
func (c *Config) ruleText(key string) string {
	for _, r := range c.Rules {
		if of, value, _ := strings.Cut(r.String(), "="); of == key {
			return value
		}
	}
	return off
}

func word(on bool) string {
	if on {
		return "on"
	}
	return off
}

// Type implements pflag.Value.
func (*Config) Type() string { return "off|KEY=VALUE,…" }
