// SPDX-License-Identifier: Apache-2.0

package dra_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

var (
	sequences = flag.Int("sequences", 300, "random sequences of claims, over all machines and forms")
	seed      = flag.Uint64("seed", 1, "where random numbers start; the same seed gives the same sequences")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// deviceClasses are those that people install.
const deviceClasses = "../../../deployments/dra/deviceclasses.yaml"
