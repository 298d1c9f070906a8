// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package main

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/test/kubelettest"
)

// TestNVMLFailsForAMoment: after discoveries that fail while NVML's events work, the GPUs are healthy again
// as soon as NVML lists them, without another event.
func TestNVMLFailsForAMoment(t *testing.T) {
	for name, c := range map[string]struct {
		failures  int
		variables []string
	}{
		"control: one discovery fails":               {1, nil},
		"two discoveries fail":                       {2, nil},
		"one discovery fails, without health checks": {1, []string{"DP_DISABLE_HEALTHCHECKS=all"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := nvidiaNode(t, "nv-h100-oci", nil)
			first := newFatal(t, filepath.Join(n.dir, "sys"), n.Machine.GPUs[0].Address.String())
			second := newFatal(t, filepath.Join(n.dir, "sys"), n.Machine.GPUs[1].Address.String())
			_, _, plugin := n.offers(t, c.variables)
			await(t, plugin, "8")
			first.increase(t)
			await(t, plugin, "8, 1 unhealthy") // the discoveries of the start are over
			n.Machine.Uncounted = c.failures
			n.Update(t)
			second.increase(t)
			for limit := time.After(kubelettest.Limit); ; {
				select {
				case devices := <-plugin.Lists:
					if health(devices) == "8, 2 unhealthy" {
						return
					}
				case <-limit:
					t.Fatal("NVML lists all GPUs, and for seconds they are unhealthy")
				}
			}
		})
	}
}
