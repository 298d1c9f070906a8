// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"log/slog"
	"sync"
	"time"
)

// complaintPause is the time without an error after which an error without a reported end counts as new.
const complaintPause = time.Hour

// complaints logs the errors of continuous activities, each error once.
type complaints struct {
	log *slog.Logger

	mu   sync.Mutex
	last map[string]complaint // current error by consequence
}

type complaint struct {
	text string
	at   time.Time // last time of the error
}

func newComplaints(log *slog.Logger) *complaints {
	return &complaints{log: log, last: map[string]complaint{}}
}

// report takes the result of each attempt: it logs an error with its consequence, unless the attempt before
// had the same error, and the end of the errors.
func (c *complaints) report(consequence string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, failed := c.last[consequence]
	switch {
	case err == nil && failed:
		delete(c.last, consequence)
		c.log.Info("recovered from: "+consequence, "error", before.text)
	case err != nil:
		c.last[consequence] = complaint{err.Error(), time.Now()}
		if before.text != err.Error() {
			c.log.Warn(consequence, "error", err)
		}
	}
}

// complain is report for an activity that reports only errors.
func (c *complaints) complain(consequence string, err error) {
	c.mu.Lock()
	if before, failed := c.last[consequence]; failed && time.Since(before.at) > complaintPause {
		delete(c.last, consequence)
	}
	c.mu.Unlock()
	c.report(consequence, err)
}
