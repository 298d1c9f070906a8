// SPDX-License-Identifier: Apache-2.0

package gpus

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/spf13/pflag"

	"github.com/tandem-k8s/tandem/plugins/gpu"
)

// Each row of the table of vendors has flags, and no other vendor has.
func TestVendors(t *testing.T) {
	var f Flags
	f.Register(pflag.NewFlagSet("", pflag.ContinueOnError), pflag.NewFlagSet("", pflag.ContinueOnError))
	for _, m := range gpu.Makers {
		f.Vendor = m.Vendor
		v, err := f.detectVendor(fstest.MapFS{}, "tandem-gpu", nil)
		if err != nil || v == nil {
			t.Errorf("%s: %v, %v", m.Vendor, v, err)
		}
	}
	if flags := f.allVendors(); len(flags) != len(gpu.Makers) {
		t.Errorf("flags of %d vendors, and %d are in the table", len(flags), len(gpu.Makers))
	}
	if nvidia, ok := gpu.MakerOf(gpu.NVIDIA); !ok || nvidia.Program != StockNVIDIA {
		t.Errorf("NVIDIA's plugin is %q in the table", nvidia.Program)
	}
}

// TestSeveralDrivers: the error names the driver of each vendor whose driver is in use, and a flag for each.
func TestSeveralDrivers(t *testing.T) {
	makers := gpu.Makers
	t.Cleanup(func() { gpu.Makers = makers })
	gpu.Makers = append(slices.Clone(makers), gpu.Maker{Vendor: "third", Driver: "thirdgpu"})
	sys := fstest.MapFS{}
	for _, m := range gpu.Makers {
		sys["bus/pci/drivers/"+m.Driver+"/0000:01:00.0"] = &fstest.MapFile{}
	}
	_, err := detectName(sys, "tandem-gpu", vendorAuto)
	if err == nil {
		t.Fatal("no error")
	}
	for _, m := range gpu.Makers {
		if text := err.Error(); !strings.Contains(text, m.Driver) || !strings.Contains(text, "--vendor="+m.Vendor) {
			t.Errorf("%s is not in %q", m.Vendor, text)
		}
	}
}

func TestDetect(t *testing.T) {
	file := &fstest.MapFile{}
	amd := fstest.MapFS{"bus/pci/drivers/amdgpu/0000:11:00.0": file}
	nvidia := fstest.MapFS{"bus/pci/drivers/nvidia/0000:11:00.0": file}
	both := fstest.MapFS{
		"bus/pci/drivers/nvidia/0000:11:00.0": file, "bus/pci/drivers/amdgpu/0000:12:00.0": file,
	}
	unused := fstest.MapFS{"bus/pci/drivers/nvidia/bind": file}
	for _, c := range []struct {
		sys           fstest.MapFS
		program, flag string
		want          string
	}{
		{amd, "tandem-gpu", "auto", "amd"},
		{nvidia, "tandem-gpu", "auto", "nvidia"},
		{unused, "k8s-device-plugin", "auto", "amd"},
		{both, "tandem-gpu", "amd", "amd"},
		{both, "tandem-gpu", "nvidia", "nvidia"},
		{both, StockNVIDIA, "auto", "nvidia"},
		{amd, StockNVIDIA, "auto", "nvidia"},
		{nvidia, "k8s-device-plugin", "auto", "amd"},
	} {
		if got, err := detectName(c.sys, c.program, c.flag); err != nil || got != c.want {
			t.Errorf("%s --vendor=%s: %s, %v, want %s", c.program, c.flag, got, err, c.want)
		}
	}
	if _, err := detectName(both, "tandem-gpu", "auto"); err == nil ||
		!strings.Contains(err.Error(), "--vendor=nvidia") {
		t.Errorf("both: %v", err)
	}
	if _, err := detectName(unused, "tandem-gpu", "auto"); !errors.Is(err, errNoDriver) {
		t.Errorf("neither: %v", err)
	}
}
