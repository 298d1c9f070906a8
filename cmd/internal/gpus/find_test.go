// SPDX-License-Identifier: Apache-2.0

package gpus

import (
	"testing"
	"testing/fstest"

	"github.com/tandem-k8s/tandem/plugins/gpu"
)

// Each row of the table of vendors has flags, and no other vendor has.
func TestVendors(t *testing.T) {
	var f Flags
	for _, m := range gpu.Makers {
		f.Vendor = m.Vendor
		v, err := f.detect(fstest.MapFS{}, "tandem-gpu")
		if err != nil || v.name() != m.Vendor {
			t.Errorf("%s: %v, %v", m.Vendor, v, err)
		}
	}
	if flags := f.vendors(); len(flags) != len(gpu.Makers) {
		t.Errorf("flags of %d vendors, and %d are in the table", len(flags), len(gpu.Makers))
	}
	if nvidia, ok := gpu.MakerOf(gpu.NVIDIA); !ok || nvidia.Program != StockNVIDIA {
		t.Errorf("NVIDIA's plugin is %q in the table", nvidia.Program)
	}
}
