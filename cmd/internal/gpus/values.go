// SPDX-License-Identifier: Apache-2.0

package gpus

import (
	"errors"
	"strconv"
	"time"
)

// seconds is a duration that a flag gives in seconds.
type seconds time.Duration

// String implements pflag.Value.
func (s *seconds) String() string { return strconv.Itoa(int(time.Duration(*s) / time.Second)) }

// Set implements pflag.Value.
func (s *seconds) Set(text string) error {
	n, err := strconv.ParseInt(text, 0, 32)
	if err != nil || n < 0 {
		return errors.New("want a number of seconds, or 0 for never")
	}
	*s = seconds(n) * seconds(time.Second)
	return nil
}

// Type implements pflag.Value.
func (s *seconds) Type() string { return "int" }

// pause is a duration greater than zero.
type pause time.Duration

// String implements pflag.Value.
func (p *pause) String() string { return time.Duration(*p).String() }

// Set implements pflag.Value.
func (p *pause) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return errors.New("want a time such as 30s")
	}
	*p = pause(d)
	return nil
}

// Type implements pflag.Value.
func (p *pause) Type() string { return "duration" }
