// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

// complaints contains the last errors of continuous activities, so that each error is logged once.
type complaints struct {
	mu   sync.Mutex
	said map[string]string // last error by consequence
}

// isNew reports whether an error differs from the last error with the same consequence.
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

// complain logs an error with its consequence.
func (d *Driver) complain(consequence string, err error) {
	if d.complaints.isNew(consequence, err) {
		d.Log.Warn(consequence, "error", err)
	}
}

// HandleError receives background errors of the helper: published data has lost fields that the cluster does
// not support; it cannot be written at the moment; or a socket failed, which ends the driver.
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
		default: // the driver already ends for another reason
		}
		return
	}
	d.complain(msg, err)
}
