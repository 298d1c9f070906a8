// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"io/fs"
	"maps"
	"sync"
	"time"

	"github.com/tandem-k8s/tandem/topology"
)

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
		m.readAll(time.Now())
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
	ticker := time.NewTicker(m.config.Interval)
	defer ticker.Stop()
	for {
		if changes := m.readAll(time.Now()); m.wasLate() || changes {
			changed()
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// readAll reads all functions once and reports whether a verdict has changed.
func (m *Monitor) readAll(now time.Time) bool {
	m.looking.Lock()
	defer m.looking.Unlock()
	m.mu.Lock()
	functions, again := m.functions, m.again
	m.again = false
	m.mu.Unlock()
	found := verdicts{}
	maps.DeleteFunc(m.watched, func(a topology.Address, _ *watched) bool {
		_, wanted := functions[a]
		return !wanted
	})
	for a, gpu := range functions {
		w := m.watched[a]
		if w == nil {
			w = &watched{judge: newJudge(&m.config, gpu)}
			m.watched[a] = w
		}
		if again {
			w.source = nil
		}
		if v := w.readOnce(m.sys, a, now); v != (Verdict{}) {
			found[a] = v
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	same := maps.Equal(found, m.verdicts)
	m.verdicts = found
	return !same
}

// readOnce reads a function once.
func (w *watched) readOnce(sys fs.FS, a topology.Address, now time.Time) Verdict {
	if w.source == nil {
		w.source, w.found = newSource(sys, a, w.judge.config.Rules), now
	}
	sample, whole := w.source.readValues()
	if !whole || now.Sub(w.found) >= relook {
		w.source = nil
	}
	return w.judge.addSample(sample, now)
}
