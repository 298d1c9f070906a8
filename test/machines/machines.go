// SPDX-License-Identifier: Apache-2.0

// Package machines holds recorded machines as files of package recording: real GPU servers, and machines
// derived from several recordings or from published addresses (their names end in "derived"). Comments at the
// head of each file state its origin and any invented parts.
//
// expect.json lists the nearest RDMA functions of each GPU and their distance, computed independently of the
// code of this repository.
//
// A report of tandem qualify that was accepted is a machine as well, with its own expectations:
// reports/hardware has those of real servers, reports/emulated has others, which only package qualify tests.
package machines

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/recording"
)

//go:embed *.txt reports
var files embed.FS

// Folders of reports.
const (
	hardware = "reports/hardware"
	emulated = "reports/emulated"
)

// Names returns the names of all machines, sorted.
func Names() []string {
	names := append(namesIn(".", ".txt"), namesIn(hardware, ".json")...)
	slices.Sort(names)
	return names
}

// Hardware returns the names of the machines that are reports of real servers, sorted.
func Hardware() []string { return namesIn(hardware, ".json") }

// Emulated returns the names of the reports of emulated machines, sorted. They are not among Names.
func Emulated() []string { return namesIn(emulated, ".json") }

// namesIn returns the names of the files of a folder with an ending; none without the folder.
func namesIn(folder, ending string) (names []string) {
	entries, err := files.ReadDir(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		panic(err) // an embedded directory can be listed
	}
	for _, entry := range entries {
		if name, ok := strings.CutSuffix(entry.Name(), ending); ok && !entry.IsDir() {
			names = append(names, name)
		}
	}
	return names
}

// File returns the file of a machine or report, below the folder of this package.
func File(name string) string {
	for _, folder := range []string{hardware, emulated} {
		if slices.Contains(namesIn(folder, ".json"), name) {
			return folder + "/" + name + ".json"
		}
	}
	return name + ".txt"
}

// Report returns the text of a report, of a real or an emulated server.
func Report(name string) ([]byte, error) {
	if file := File(name); strings.HasSuffix(file, ".json") {
		return files.ReadFile(file)
	}
	return nil, fmt.Errorf("load report %q: there are %s", name,
		strings.Join(slices.Concat(Hardware(), Emulated()), ", "))
}

// text returns the machine file of a machine.
func text(name string) ([]byte, error) {
	text, err := files.ReadFile(name + ".txt")
	if err == nil {
		return text, nil
	}
	if text, err = Report(name); err != nil {
		return nil, err
	}
	var report struct {
		Machine []string `json:"machine"`
	}
	if err := json.Unmarshal(text, &report); err != nil {
		return nil, fmt.Errorf("load report %s: %w", name, err)
	}
	return []byte(strings.Join(report.Machine, "\n") + "\n"), nil
}

// Tree returns the PCI tree of a machine, as Load returns the machine.
func Tree(name string, vfsPerPF int) (*topology.Tree, error) {
	m, err := known(name, vfsPerPF)
	if err != nil {
		return nil, err
	}
	return m.tree()
}

// Sys returns the sysfs of a machine for a test, as Load returns the machine.
func Sys(t testing.TB, name string, vfsPerPF int) fs.FS {
	t.Helper()
	machine, err := Load(name, vfsPerPF)
	if err != nil {
		t.Fatal(err)
	}
	return machine.FS()
}

// Read returns the sysfs of a machine for a test, and its PCI tree.
func Read(t testing.TB, name string, vfsPerPF int) (fs.FS, *topology.Tree) {
	t.Helper()
	tree, err := Tree(name, vfsPerPF)
	if err != nil {
		t.Fatal(err)
	}
	return Sys(t, name, vfsPerPF), tree
}

// IsGPU reports whether a device is a GPU of a vendor with a plugin: a BMC has a display controller too.
func IsGPU(d *topology.Device) bool {
	return d.Class.IsGPU() && (d.Vendor == 0x1002 || d.Vendor == 0x10de)
}

// Load returns a machine with the given number of VFs on each RDMA-capable PF. A machine recorded with VFs
// keeps the recorded VFs.
func Load(name string, vfsPerPF int) (*recording.Machine, error) {
	m, err := known(name, vfsPerPF)
	if err != nil {
		return nil, err
	}
	return m.machine, nil
}

// read has the machines that this process has loaded, by name and number of VFs. Neither a machine nor a tree
// changes, and to read one takes milliseconds, which hundreds of nodes of a random test would take anew.
var read sync.Map

// key is a machine with its number of VFs.
type key struct {
	name     string
	vfsPerPF int
}

// loaded is a machine with its PCI tree, which is read once.
type loaded struct {
	machine *recording.Machine
	tree    func() (*topology.Tree, error)
}

// known returns a machine, loaded the first time.
func known(name string, vfsPerPF int) (loaded, error) {
	if m, is := read.Load(key{name, vfsPerPF}); is {
		return m.(loaded), nil
	}
	machine, err := load(name, vfsPerPF)
	if err != nil {
		return loaded{}, err
	}
	m := loaded{machine, sync.OnceValues(func() (*topology.Tree, error) { return topology.Read(machine.FS()) })}
	read.Store(key{name, vfsPerPF}, m)
	return m, nil
}

// load reads a machine from its file.
func load(name string, vfsPerPF int) (*recording.Machine, error) {
	content, err := text(name)
	if err != nil {
		return nil, fmt.Errorf("load machine %q: there are %s", name, strings.Join(Names(), ", "))
	}
	machine, err := recording.Parse(bytes.NewReader(content))
	if err != nil {
		return nil, fmt.Errorf("load machine %s: %w", name, err)
	}
	withVFs, err := recording.AddVFs(machine, vfsPerPF)
	switch {
	case errors.Is(err, recording.ErrHasVFs):
		return machine, nil
	case err != nil:
		return nil, fmt.Errorf("load machine %s: %w", name, err)
	default:
		return withVFs, nil
	}
}
