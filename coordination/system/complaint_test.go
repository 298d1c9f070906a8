// SPDX-License-Identifier: Apache-2.0

package system_test

import (
	"errors"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/system"
)

func TestComplaint(t *testing.T) {
	var c system.Complaint
	for i, attempt := range []struct {
		err  string
		want bool
	}{{"", false}, {"full", true}, {"full", false}, {"gone", true}, {"", false}, {"gone", true}} {
		var err error
		if attempt.err != "" {
			err = errors.New(attempt.err)
		}
		if got := c.IsNew(err); got != attempt.want {
			t.Errorf("attempt %d, %q: new %v", i, attempt.err, got)
		}
	}
}
