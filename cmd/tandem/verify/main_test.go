// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

// TestMain makes this program a perftest under the names of perftest's programs.
func TestMain(m *testing.M) {
	switch name := filepath.Base(os.Args[0]); name {
	case bandwidthProgram, latencyProgram:
		os.Exit(perftest(name, os.Args[1:]))
	}
	goleak.VerifyTestMain(m)
}
