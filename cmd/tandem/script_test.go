// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	sysfstest "github.com/tandem-k8s/tandem/test/functions"
	"github.com/tandem-k8s/tandem/test/golden"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology/recording"
)

// TestScripts: what the commands print of recorded machines, and of wrong arguments. Only plans have colours
// there.
func TestScripts(t *testing.T) {
	t.Parallel()
	for file, coloured := range map[string]string{
		"doctor": "", "errors": "", "help": "", "record": "", "slices": "", "topo": "",
		"plan": "green C2C, green PIX, red note:, yellow NODE, yellow PHB, yellow SYS",
	} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			var shown colours
			golden.Script{
				Run: func(args []string) (code int, stdout, stderr string) {
					args = args[1:]
					if coloured != "" {
						args = append(args, "--color=always")
					}
					code, stdout, stderr = run(args...)
					return code, shown.strip(stdout), stderr
				},
				Word: func(name string) string { return wordOf(t, name) },
			}.Check(t, "testdata/scripts/"+file+".txt")
			shown.check(t, coloured)
		})
	}
}

// wordOf returns the file or the folder that a script names: MACHINE or MACHINE/VFS for the file of a
// machine, sysfs:MACHINE/VFS for its sysfs, and others.
func wordOf(t *testing.T, name string) string {
	t.Helper()
	if machine, found := strings.CutPrefix(name, "sysfs:"); found {
		machine, perPF := machineOf(machine)
		return sysfs(t, machine, perPF)
	}
	if machine, perPF := machineOf(name); machine != name {
		return withVFs(t, machine, perPF)
	}
	switch name {
	case "empty":
		return t.TempDir()
	case "new-file":
		return filepath.Join(t.TempDir(), "new.txt")
	case "nics":
		return sysfstest.ConnectX7().Folder(t)
	case "bridges":
		return sysfstest.ConnectX7(sysfstest.Bridges...).Folder(t)
	case "no-vpd":
		return changed(t, "nv-gb200-oke-derived", "bus/pci/devices/*/vpd", os.Remove)
	case "broken-kfd":
		return changed(t, "oci-mi300x-derived", "devices/virtual/kfd/kfd/topology/nodes/3/properties",
			func(file string) error { return os.WriteFile(file, []byte("simd_count many\n"), 0o600) })
	case "many-cards":
		return manyCards(t)
	case "default-pool":
		return defaultPool(t)
	case "deep":
		return write(t, "deep.txt", "# tandem machine v1\n[a"+strings.Repeat("/a", 10_000_000)+"]\nend 1 entries\n")
	default:
		return recorded(name)
	}
}

// machineOf splits MACHINE/VFS.
func machineOf(name string) (machine string, perPF int) {
	machine, vfs, _ := strings.Cut(name, "/")
	perPF, _ = strconv.Atoi(vfs)
	return machine, perPF
}

// changed returns the sysfs of a machine with changed files.
func changed(t *testing.T, machine, pattern string, change func(file string) error) string {
	t.Helper()
	root := t.TempDir()
	ready(t, os.CopyFS(root, machines.Sys(t, machine, 0)))
	files, err := filepath.Glob(filepath.Join(root, pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("%v: no file %s", err, pattern)
	}
	for _, file := range files {
		ready(t, change(file))
	}
	return root
}

// manyCards returns a recording with more GPUs than a machine may have.
func manyCards(t *testing.T) string {
	t.Helper()
	b := recording.NewBuilder()
	for i := range 1025 {
		address := fmt.Sprintf("%04x:%02x:00.0", i/256, i%256)
		place := fmt.Sprintf("devices/pci%04x:00/%s", i/256, address)
		b.File(place+"/class", "0x030200\n")
		b.File(place+"/vendor", "0x10de\n")
		b.Link("bus/pci/devices/"+address, "../../../"+place)
	}
	return write(t, "cards.txt", textOf(t, b))
}

// defaultPool returns the configuration of the manifests.
func defaultPool(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile("../../deployments/base/config.yaml")
	ready(t, err)
	var object struct{ Data map[string]string }
	ready(t, yaml.Unmarshal(content, &object))
	return write(t, "config.json", object.Data["config.json"])
}

// textOf returns the recording of a built machine.
func textOf(t *testing.T, b *recording.Builder) string {
	t.Helper()
	m, err := b.Machine()
	ready(t, err)
	var text strings.Builder
	if _, err := m.WriteTo(&text); err != nil {
		t.Fatal(err)
	}
	return text.String()
}
