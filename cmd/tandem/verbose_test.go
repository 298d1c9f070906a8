// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/test/machines"
)

// acsConfig returns the configuration space of a port with this value of the ACS control register, after
// another capability.
func acsConfig(control uint16) string {
	config := make([]byte, 4096)
	// advanced error reporting, the next at 0x140
	binary.LittleEndian.PutUint32(config[0x100:], 0x0001|1<<16|0x140<<20)
	binary.LittleEndian.PutUint32(config[0x140:], 0x000d|1<<16)
	binary.LittleEndian.PutUint16(config[0x146:], control)
	return string(config)
}

// The first pair's NIC is below a port with ACS redirect; the second one's has none; the third is unreadable.
// The first NIC's link is degraded, its port down.
func TestTopoVerbose(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	m, err := machines.Load("oci-mi300x-derived", 1)
	if err == nil {
		err = os.CopyFS(root, m.FS())
	}
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	function := func(address string) string { return "bus/pci/devices/" + address }
	bridges := func(address string) []string {
		target, err := os.Readlink(filepath.Join(root, function(address)))
		if err != nil {
			t.Fatal(err)
		}
		chain := strings.Split(filepath.Dir(target), "/")
		return chain[5:] // ../../../devices/pci….
	}
	control := func(address string, value uint16) {
		for _, bridge := range bridges(address) {
			write(function(bridge)+"/config", acsConfig(value))
		}
	}
	control("0000:11:00.0", 0x1)
	control("0000:0c:00.0", 0x1)
	last := bridges("0000:0c:00.0")
	write(function(last[len(last)-1])+"/config", acsConfig(0x1d))
	control("0000:2f:00.0", 0x1)
	control("0000:2a:00.0", 0x1)
	for file, content := range map[string]string{
		"current_link_speed": "16.0 GT/s PCIe\n", "max_link_speed": "32.0 GT/s PCIe\n",
		"current_link_width": "16\n", "max_link_width": "16\n",
	} {
		write(function("0000:0c:00.0")+"/"+file, content)
	}
	write(function("0000:0c:00.0")+"/infiniband/mlx5_0/ports/1/state", "1: DOWN\n")
	out := succeed(t, "topo", "-v", "--sysfs-root", root)
	lines := strings.Split(string(out), "\n")
	var got []string
	for _, line := range lines {
		for _, prefix := range []string{"NIC0  PCIe", "NIC1  PCIe", "GPU0 NIC0", "GPU1 NIC1", "GPU2 NIC2"} {
			if strings.HasPrefix(line, prefix) {
				got = append(got, strings.Join(strings.Fields(line), " "))
			}
		}
	}
	want := []string{
		"NIC0 PCIe 16 GT/s x16 of 32 GT/s x16 no IOMMU group mlx5_0 port 1: DOWN, 400 Gb/sec (4X NDR)",
		"NIC1 PCIe unknown no IOMMU group mlx5_1 port 1: ACTIVE, 400 Gb/sec (4X NDR)",
		"GPU0 NIC0 PIX ACS redirect at " + last[len(last)-1] + ": traffic goes through the host bridge",
		"GPU1 NIC1 PIX no ACS redirect: traffic stays within the switch",
		"GPU2 NIC2 PIX ACS unknown: only root reads and records it",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s\n%s", diff, out)
	}
	if plain := string(succeed(t, "topo", "--sysfs-root", root)); strings.Contains(plain, "ACS") {
		t.Errorf("without -v:\n%s", plain)
	}
	if json := string(succeed(t, "topo", "-v", "-o", "json", "--sysfs-root", root)); strings.Count(json,
		`"acs": "redirect"`) != 1 {
		t.Errorf("JSON:\n%s", json)
	}
}
