// SPDX-License-Identifier: Apache-2.0

//go:build race

package gpu_test

// slower is how many times as long the race detector may take.
const slower = 20
