// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"fmt"
	"testing"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
)

func BenchmarkBuild(b *testing.B) {
	for _, c := range []struct {
		machine      string
		vfs, limited int
	}{
		{"oci-mi300x-derived", 8, 0},
		{"oci-mi300x-derived", 127, 8},
		{"oci-mi300x-derived", 127, 0},
		{"amd-mi250-16gcd-8nic", 8, 0},
		{"amd-mi300x-smc-thor2-cpx-derived", 8, 0},
	} {
		machine := load(b, c.machine, c.vfs)
		options := sharing
		options.VFsPerPF = c.limited
		name := fmt.Sprintf("gpus=%d/vfs=%d/per-pf=%d", len(machine.GPUs), len(machine.VFs), c.limited)
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				pool.Build(machine, options)
			}
		})
	}
}
