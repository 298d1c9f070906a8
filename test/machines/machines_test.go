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

func TestNearestFunctions(t *testing.T) {
	t.Parallel()
	expect := expectations(t)
	reports := append(Hardware(), Emulated()...)
	for _, name := range Names() {
		if _, ok := expect[name]; !ok && !slices.Contains(reports, name) {
			t.Errorf("expect.json lacks %s", name)
		}
	}
	for name := range expect {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, tree := Read(t, name, 0)
			got := map[topology.Address]nearest{}
			for gpu := range tree.Devices() {
				if IsGPU(gpu) {
					got[gpu.Address] = nearestTo(tree, gpu.Address)
				}
			}
			if diff := cmp.Diff(expect[name], got); diff != "" {
				t.Errorf("nearest RDMA functions (-want +got):\n%s", diff)
			}
		})
	}
}

// TestComplexes lists the complexes of the derived machines, in the notation of complexText. The other
// machines have none.
func TestComplexes(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"nv-gb200-derived": "c2c 0008:01:00.0 0009:01:00.0: 0000:01:00.0 0002:01:00.0\n" +
			"c2c 0018:01:00.0 0019:01:00.0: 0010:01:00.0 0012:01:00.0\n",
		"nv-gb200-oke-derived": "dma 0008:06:00.0: 0000:03:00.0 0000:03:00.1 by 0008:03:00.0\n" +
			"dma 0009:06:00.0: 0002:03:00.0 0002:03:00.1 by 0009:03:00.0\n" +
			"dma 0018:06:00.0: 0010:03:00.0 0010:03:00.1 by 0018:03:00.0\n" +
			"dma 0019:06:00.0: 0012:03:00.0 0012:03:00.1 by 0019:03:00.0\n",
		"nv-gb300-aks-derived": "c2c 0008:06:00.0 0009:06:00.0: 0101:00:00.0 0102:00:00.0\n" +
			"c2c 0018:06:00.0 0019:06:00.0: 0103:00:00.0 0104:00:00.0\n",
		"nv-gb300-aks-dma-derived": "dma 0008:06:00.0: 0101:00:00.0 by 0008:03:00.0\n" +
			"dma 0009:06:00.0: 0102:00:00.0 by 0009:03:00.0\n" +
			"dma 0018:06:00.0: 0103:00:00.0 by 0018:03:00.0\n" +
			"dma 0019:06:00.0: 0104:00:00.0 by 0019:03:00.0\n",
		"nv-cx8-inline-derived": "inline 0000:16:00.0 0000:19:00.0: 0000:13:00.0\n" +
			"inline 0000:46:00.0 0000:49:00.0: 0000:43:00.0\n" +
			"inline 0000:96:00.0 0000:99:00.0: 0000:93:00.0\n" +
			"inline 0000:c6:00.0 0000:c9:00.0: 0000:c3:00.0\n",
		"nv-bf3-derived": "inline 0000:14:00.0: 0000:13:00.0\ninline 0000:24:00.0: 0000:23:00.0\n" +
			"inline 0000:94:00.0: 0000:93:00.0\ninline 0000:a4:00.0: 0000:a3:00.0\n",
		"nv-vera-derived": "c2c 0008:01:00.0 0009:01:00.0: 0000:03:00.0 0000:03:00.1 0002:03:00.0 0002:03:00.1\n" +
			"c2c 0018:01:00.0 0019:01:00.0: 0010:03:00.0 0010:03:00.1 0012:03:00.0 0012:03:00.1\n",
	}
	for _, name := range Names() {
		_, tree := Read(t, name, 2)
		var got strings.Builder
		for _, c := range tree.Complexes() {
			got.WriteString(complexText(c))
		}
		if diff := cmp.Diff(want[name], got.String()); diff != "" {
			t.Errorf("%s: complexes (-want +got):\n%s", name, diff)
		}
		for d := range tree.Devices() {
			if n := tree.Redirected(d.Address); n > 0 {
				t.Errorf("%s: %s is below a redirect of %d shared bridges", name, d.Address, n)
			}
		}
	}
}

// complexText is "kind GPUs: NICs by DMA function; fault".
func complexText(c topology.Complex) string {
	text := string(c.Kind) + addressText(c.GPUs) + ":" + addressText(c.NICs)
	if c.Kind == topology.KindDMA {
		text += " by " + c.Function.String()
	}
	if c.Fault != "" {
		text += "; " + c.Fault
	}
	return text + "\n"
}

// addressText is " address" for each address.
func addressText(all []topology.Address) string {
	var text strings.Builder
	for _, a := range all {
		text.WriteString(" " + a.String())
	}
	return text.String()
}

// TestNearestByNCCL: the nearest NICs of each GPU of a report are those of NCCL's topology in the report,
// which is independent of this repository. A report without it needs an entry in expect.json.
func TestNearestByNCCL(t *testing.T) {
	t.Parallel()
	expect := expectations(t)
	for _, name := range append(Hardware(), Emulated()...) {
		byNCCL := nearestByNCCL(t, name)
		if _, ok := expect[name]; !ok && len(byNCCL) == 0 {
			t.Errorf("%s has no topology of NCCL and is not in expect.json", name)
		}
		_, tree := Read(t, name, 0)
		for gpu, want := range byNCCL {
			var got []topology.Address
			for _, nic := range nearestTo(tree, gpu).Nearest {
				d, _ := tree.Device(nic)
				if pf := d.Function(); !slices.Contains(got, pf) {
					got = append(got, pf)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: nearest NICs of %s (-NCCL +tree):\n%s", name, gpu, diff)
			}
		}
	}
}

// nearestByNCCL returns the NICs below the lowest switch of each GPU that has NICs; no GPU without such a
// switch.
func nearestByNCCL(t *testing.T, name string) map[topology.Address][]topology.Address {
	t.Helper()
	type place struct {
		Address topology.Address   `json:"address"`
		Bridges []topology.Address `json:"bridges"`
	}
	var report struct {
		NCCL struct {
			GPUs []place `json:"gpus"`
			NICs []place `json:"nics"`
		} `json:"nccl"`
	}
	text, err := Report(name)
	if err == nil {
		err = json.Unmarshal(text, &report)
	}
	if err != nil {
		t.Fatal(err)
	}
	all := map[topology.Address][]topology.Address{}
	for _, gpu := range report.NCCL.GPUs {
		most := 1 // bridges in common
		for _, nic := range report.NCCL.NICs {
			common := 0
			for common < min(len(gpu.Bridges), len(nic.Bridges)) && gpu.Bridges[common] == nic.Bridges[common] {
				common++
			}
			if common > most {
				all[gpu.Address], most = nil, common
			}
			if common == most {
				all[gpu.Address] = append(all[gpu.Address], nic.Address)
			}
		}
		slices.SortFunc(all[gpu.Address], topology.Address.Compare)
	}
	return all
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
	for _, name := range append(Names(), Emulated()...) {
		want, err := text(name)
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
			t.Errorf("%s is not as WriteTo writes it", name)
		}
	}
}

// TestCaptureKeepsAll: there is nothing in a machine that "tandem record" would not record, VFs included, and
// it loses nothing of it.
func TestCaptureKeepsAll(t *testing.T) {
	t.Parallel()
	for _, name := range Names() {
		m, err := Load(name, 3)
		if err != nil {
			t.Fatal(err)
		}
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
		sys := Sys(t, name, 2)
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
		!strings.Contains(err.Error(), `load machine "nv-h9000": there are `+strings.Join(Names(), ", ")) {
		t.Errorf("Load of an unknown machine: %v", err)
	}
}
