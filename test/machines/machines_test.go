// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/recording"
)

//go:embed expect.json
var expectJSON []byte

// nearest is what expect.json says of a GPU.
type nearest struct {
	// a word of the ladder, "" where the machine has no RDMA function
	Distance string             `json:"distance"`
	Nearest  []topology.Address `json:"nearest"`
}

func expectations(t *testing.T) map[string]map[topology.Address]nearest {
	t.Helper()
	var expect map[string]map[topology.Address]nearest
	if err := json.Unmarshal(expectJSON, &expect); err != nil {
		t.Fatalf("read expect.json: %v", err)
	}
	return expect
}

func read(t *testing.T, m *recording.Machine) *topology.Tree {
	t.Helper()
	tree, err := topology.Read(m.FS())
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func load(t *testing.T, name string, vfs int) *recording.Machine {
	t.Helper()
	m, err := Load(name, vfs)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestNearestFunctions(t *testing.T) {
	t.Parallel()
	expect := expectations(t)
	if len(expect) != len(Names()) {
		t.Errorf("expect.json has %d machines, there are %d", len(expect), len(Names()))
	}
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tree := read(t, load(t, name, 0))
			got := map[topology.Address]nearest{}
			for gpu := range tree.Devices() {
				if gpu.Class.IsGPU() && (gpu.Vendor == 0x1002 || gpu.Vendor == 0x10de) {
					got[gpu.Address] = nearestTo(tree, gpu.Address)
				}
			}
			if diff := cmp.Diff(expect[name], got); diff != "" {
				t.Errorf("nearest RDMA functions (-want +got):\n%s", diff)
			}
		})
	}
}

func nearestTo(tree *topology.Tree, gpu topology.Address) nearest {
	best := topology.Distance{Level: topology.UNK + 1}
	n := nearest{Nearest: []topology.Address{}}
	for d := range tree.Devices() {
		if !d.Class.IsNetwork() || len(d.RDMA) == 0 {
			continue
		}
		distance := tree.Distance(gpu, d.Address)
		switch c := distance.Compare(best); {
		case c < 0:
			best, n.Nearest = distance, []topology.Address{d.Address}
		case c == 0:
			n.Nearest = append(n.Nearest, d.Address)
		}
		n.Distance = best.Level.String()
	}
	slices.SortFunc(n.Nearest, topology.Address.Compare)
	return n
}

// TestFilesAreCanonical keeps the files as WriteTo writes them, so that a changed fact is a changed line.
func TestFilesAreCanonical(t *testing.T) {
	t.Parallel()
	for _, name := range Names() {
		want, err := files.ReadFile(name + ".txt")
		if err != nil {
			t.Fatal(err)
		}
		m, err := recording.Parse(bytes.NewReader(want))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var got bytes.Buffer
		if _, err := m.WriteTo(&got); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(want, got.Bytes()) {
			t.Errorf("%s.txt is not as WriteTo writes it", name)
		}
	}
}

// TestCaptureKeepsAll: there is nothing in a machine that "tandem record" would not record, VFs included, and
// it loses nothing of it.
func TestCaptureKeepsAll(t *testing.T) {
	t.Parallel()
	for _, name := range Names() {
		m := load(t, name, 3)
		captured, err := recording.Capture(m.FS())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if want, got := entries(t, m), entries(t, captured); want != got {
			t.Errorf("%s (-machine +captured):\n%s", name, cmp.Diff(want, got))
		}
	}
}

// entries is a machine file without its comments.
func entries(t *testing.T, m *recording.Machine) string {
	t.Helper()
	var text bytes.Buffer
	if _, err := m.WriteTo(&text); err != nil {
		t.Fatal(err)
	}
	return text.String()[strings.Index(text.String(), "\n["):]
}

// TestLinksLeadSomewhere: in sysfs no link dangles.
func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	for _, name := range Names() {
		sys := load(t, name, 2).FS()
		err := fs.WalkDir(sys, ".", func(path string, _ fs.DirEntry, err error) error {
			if err == nil {
				_, err = fs.Stat(sys, path)
			}
			return err
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLoadUnknown(t *testing.T) {
	t.Parallel()
	if _, err := Load("nv-h9000", 0); err == nil ||
		!strings.Contains(err.Error(), `load machine "nv-h9000": there are amd-mi250-16gcd-8nic, `) {
		t.Errorf("Load of an unknown machine: %v", err)
	}
}

func BenchmarkLoad(b *testing.B) {
	for _, name := range Names() {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := Load(name, 4); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkCapture(b *testing.B) {
	m, err := Load("amd-mi300x-smc-thor2-cpx-derived", 16)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := recording.Capture(m.FS()); err != nil {
			b.Fatal(err)
		}
	}
}
