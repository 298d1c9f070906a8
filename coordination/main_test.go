// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	switch os.Getenv("TANDEM_TEST_ROLE") {
	case "server":
		os.Exit(serveForTest())
	case "flood":
		os.Exit(floodForTest())
	case "mode":
		os.Exit(enterModeForTest())
	}
	goleak.VerifyTestMain(m)
}
