// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
)

// TestAwaited: a plugin waits for the GPUs that are on PCI, but for those of virtual machines.
func TestAwaited(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ machine, vendor, driver, want string }{
		{"nv-h100-oci", "", "", "8 GPUs of NVIDIA's on PCI (the first 0000:0f:00.0, driver nvidia)"},
		{"nv-h100-oci", "nvidia", "none", "8 GPUs of NVIDIA's on PCI (the first 0000:0f:00.0, driver none)"},
		{"nv-h100-oci", "amd", "", "no GPU on PCI"},
		{"oci-mi300x-derived", "", "", "8 GPUs of AMD's on PCI (the first 0000:11:00.0, driver amdgpu)"},
		{"oci-mi300x-derived", "amd", "vfio-pci", "no GPU on PCI"},
	} {
		machine, err := machines.Load(c.machine, 0)
		if err != nil {
			t.Fatal(err)
		}
		tree, err := topology.Read(machine.FS())
		if err != nil {
			t.Fatal(err)
		}
		for d := range tree.Devices() {
			switch {
			case Vendor(d) == "" || c.driver == "":
			case c.driver == "none":
				d.Driver = ""
			default:
				d.Driver = c.driver
			}
		}
		if got := AwaitedIn(tree, c.vendor).String(); got != c.want {
			t.Errorf("%s, vendor %q, driver %q: %s, want %s", c.machine, c.vendor, c.driver, got, c.want)
		}
	}
}

// TestOtherVendor: GPUs of another vendor than the one in --vendor are named, with the value to set.
func TestOtherVendor(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ machine, vendor, want string }{
		{"nv-h100-oci", "amd", "gpu.vendor (--vendor) is amd, and the GPUs of this node are NVIDIA's: " +
			"set gpu.vendor=nvidia or auto"},
		{"oci-mi300x-derived", "nvidia", "gpu.vendor (--vendor) is nvidia, and the GPUs of this node are AMD's: " +
			"set gpu.vendor=amd or auto"},
		{"oci-mi300x-derived", "amd", ""},
		{"oci-mi300x-derived", "", ""},
		{"", "amd", ""},
	} {
		var sys fs.FS = fstest.MapFS{"bus/pci/devices": {Mode: fs.ModeDir}}
		if c.machine != "" {
			machine, err := machines.Load(c.machine, 0)
			if err != nil {
				t.Fatal(err)
			}
			sys = machine.FS()
		}
		tree, err := topology.Read(sys)
		if err != nil {
			t.Fatal(err)
		}
		note := DescribeUnpublished(tree, c.vendor, errors.New("NVML: "+NVMLRemedy))
		if c.machine == "" && note != "" || c.machine != "" && !strings.HasPrefix(note, Unpublished+": ") ||
			!strings.Contains(note, c.want) || strings.Contains(note, "runtimeClassName") {
			t.Errorf("%s, vendor %q: the note is %q", c.machine, c.vendor, note)
		}
		got := ""
		if err := OtherVendor(tree, c.vendor); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s, vendor %q: %q, want %q", c.machine, c.vendor, got, c.want)
		}
	}
}
