// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestChildStaysBehind: the end of a process does not wait for a child that has the output.
func TestChildStaysBehind(t *testing.T) {
	t.Parallel()
	p := Start(t, exec.Command("sh", "-c", "sleep 20 & echo started; exec sleep 20"))
	p.Until(t, func() bool { return strings.Contains(p.Log(), "started") })
	began := time.Now()
	p.Kill()
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it takes %s", took)
	}
}
