// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/test/machines"
)

// TestUnreadVPD: without Vital Product Data, as for other users than root, the commands say that a NIC may be
// nearer than NODE.
func TestUnreadVPD(t *testing.T) {
	t.Parallel()
	m, err := machines.Load("nv-gb200-oke-derived", 0)
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	if err := os.CopyFS(root, m.FS()); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(root, "bus/pci/devices/*/vpd"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%v: %d files vpd", err, len(files))
	}
	for _, file := range files {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	for command, want := range map[string]string{
		"topo": "?      may be nearer", "topo -o json": `"mayBeNearer": true`,
		"plan --gpus 1 --vfs 1": "NODE",
	} {
		code, stdout, stderr := run(append(strings.Fields(command), "--sysfs-root", root)...)
		const note = "note: a NIC may be nearer than shown to GPU 0008:06:00.0, 0009:06:00.0, 0018:06:00.0, " +
			"0019:06:00.0: Vital Product Data is unread"
		if code != cli.ExitOK || !strings.Contains(stdout, want) || strings.Count(stderr, note) != 1 {
			t.Errorf("%s: exit code %d, want %q:\n%s%s", command, code, want, stdout, stderr)
		}
	}
}

// TestWordsOfComplexes: the commands name the way of the traffic of each kind of complex.
func TestWordsOfComplexes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ machine, command, want string }{
		{"nv-gb200-oke-derived", "topo -v", "traffic of DMA function 0008:03:00.0 stays within the switch"},
		{"nv-vera-derived", "topo -v", "NVLink-C2C of the CPU: ACS of switches has no effect"},
		{"nv-vera-derived", "topo -o svg", "GPUs with a NIC over NVLink-C2C 4"},
		{"nv-cx8-inline-derived", "topo -v", "no ACS redirect: traffic stays within the switch"},
		{"nv-cx8-inline-derived", "topo -o svg", "GPUs with a NIC on their switch 8"},
	} {
		args := append(strings.Fields(c.command), "--machine", withVFs(t, c.machine, 0))
		code, got, stderr := run(args...)
		if code != cli.ExitOK || !strings.Contains(got, c.want) || strings.Contains(got+stderr, "may be nearer") {
			t.Errorf("%s of %s: exit code %d, %s, want %q:\n%.3000s", c.command, c.machine, code, stderr, c.want, got)
		}
	}
}
