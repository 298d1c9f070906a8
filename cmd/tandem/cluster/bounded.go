// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"fmt"
)

// How much a command in a daemon's pod may print, in bytes. The status of a node with 1,024 VFs takes a third
// of a MiB.
const (
	mostPrinted  = 4 << 20
	mostProblems = 64 << 10
)

// bounded keeps what is written to it, up to a bound.
type bounded struct {
	bytes.Buffer
	bound  int
	excess func(error) // told once more than that comes
}

// Write implements io.Writer.
func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > b.bound {
		err := fmt.Errorf("the answer is longer than %d KiB", b.bound>>10)
		b.excess(err)
		return 0, err
	}
	return b.Buffer.Write(p)
}
