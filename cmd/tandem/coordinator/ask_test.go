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
		got := DescribeUnoffered(machine.FS(), "")
		for _, word := range want {
			if !strings.Contains(got, word) {
				t.Errorf("%s: %q lacks %q", name, got, word)
			}
		}
	}
	if got := DescribeUnoffered(fstest.MapFS{}, ""); got != "" {
		t.Errorf("of a machine that cannot be read: %q", got)
	}
	connected, away := Resource{Kind: "gpu", Connected: true}, Resource{Kind: "gpu"}
	vfs := Resource{Kind: "vf", Connected: true}
	if !(Status{Resources: []Resource{vfs, connected}}).OffersGPUs() ||
		(Status{Resources: []Resource{vfs, away}}).OffersGPUs() {
		t.Error("a plugin offers GPUs while it is there")
	}
}

// TestNotesAboutVFs: a status without VFs says who offers none.
func TestNotesAboutVFs(t *testing.T) {
	t.Parallel()
	gpus := Resource{Kind: "gpu", Connected: true, Devices: []Device{{}}}
	for name, c := range map[string]struct {
		status Status
		want   string
	}{
		"none":            {Status{Resources: []Resource{gpus}}, noVFPlugin + "tandem-rdma does not run here"},
		"no device":       {Status{Resources: []Resource{gpus, {Kind: "vf", Connected: true}}}, "the config"},
		"in mode DRA":     {Status{Mode: "dra", Resources: []Resource{gpus}}, "no VF is published"},
		"DRA without any": {Status{Mode: "dra"}, "no VF is published"},
		"some":            {Status{Resources: []Resource{gpus, {Kind: "vf", Devices: []Device{{}}}}}, ""},
	} {
		c.status.noteMissing(fstest.MapFS{})
		notes := strings.Join(c.status.Notes, "\n")
		if !strings.HasPrefix(notes, c.want) || c.want == "" && notes != "" {
			t.Errorf("%s: notes %q, want %q", name, notes, c.want)
		}
	}
}

// TestUnofferedWithDriver: a plugin does not wait for a driver that has the GPUs.
func TestUnofferedWithDriver(t *testing.T) {
	t.Parallel()
	sys := machines.Sys(t, "oci-mi300x-derived", 0)
	if got := DescribeUnoffered(sys, ""); strings.Contains(got, "waits") ||
		!strings.HasSuffix(got, "does not run here, or has a gpu.vendor other than amd") {
		t.Error(got)
	}
	if got := DescribeUnoffered(sys, "nvidia"); !strings.HasSuffix(got, "set gpu.vendor=amd or auto") {
		t.Error(got)
	}
}
