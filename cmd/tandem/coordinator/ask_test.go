// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/tandem-k8s/tandem/test/machines"
)

// TestUnoffered: of a machine with GPUs that no plugin offers it is said what tandem-gpu may wait for.
func TestUnoffered(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][]string{
		"nv-h100-oci": {"8 GPUs of NVIDIA's", "NVML", "gpu.runtimeClassName", "gpu.driverRoot",
			"gpu.deviceListStrategy"},
		"oci-mi300x-derived": {"8 GPUs of AMD's", "amdgpu"},
	} {
		machine, err := machines.Load(name, 0)
		if err != nil {
			t.Fatal(err)
		}
		got := Unoffered(machine.FS())
		for _, word := range want {
			if !strings.Contains(got, word) {
				t.Errorf("%s: %q lacks %q", name, got, word)
			}
		}
	}
	if got := Unoffered(fstest.MapFS{}); got != "" {
		t.Errorf("of a machine that cannot be read: %q", got)
	}
	connected, away := Resource{Kind: "gpu", Connected: true}, Resource{Kind: "gpu"}
	vfs := Resource{Kind: "vf", Connected: true}
	if !(Status{Resources: []Resource{vfs, connected}}).OffersGPUs() ||
		(Status{Resources: []Resource{vfs, away}}).OffersGPUs() {
		t.Error("a plugin offers GPUs while it is there")
	}
}
