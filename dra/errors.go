package dra

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

// complaints are the last errors of what goes on all the time, so that each is logged once.
type complaints struct {
	mu   sync.Mutex
	said map[string]string // by the consequence
}

// isNew reports whether an error is not the one that was said last of a consequence.
func (c *complaints) isNew(consequence string, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.said == nil {
		c.said = map[string]string{}
	}
	if c.said[consequence] == err.Error() {
		return false
	}
	c.said[consequence] = err.Error()
	return true
}

// complain logs what an error leads to.
func (d *Driver) complain(consequence string, err error) {
	if d.complaints.isNew(consequence, err) {
		d.Log.Warn(consequence, "error", err)
	}
}

// HandleError is told what goes wrong behind the calls: what is published has lost fields, which the cluster
// does not know; it cannot be written for now; or a socket cannot be served any more, which ends the driver.
func (d *Driver) HandleError(_ context.Context, err error, msg string) {
	if dropped := (*resourceslice.DroppedFieldsError)(nil); errors.As(err, &dropped) {
		if d.gates.drop(dropped.DisabledFeatures()) {
			d.wake()
			return
		}
	}
	if !errors.Is(err, kubeletplugin.ErrRecoverable) {
		select {
		case d.fatal <- fmt.Errorf("%s: %w", msg, err):
		default: // it ends for another reason already
		}
		return
	}
	d.complain(msg, err)
}
