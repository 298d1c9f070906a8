// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"bytes"
	"cmp"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/cmd/tandem/qualify"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/test/golden"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/recording"
)

// rowOfVersions is a row of the matrix: a version of Kubernetes, or several, and the evidence.
var rowOfVersions = regexp.MustCompile(`(?m)^\| 1\.(\d+)(?: to 1\.(\d+))? \| (\w+)`)

// evidenceByVersion returns the evidence of each minor version of Kubernetes. A version has one row.
func evidenceByVersion(t *testing.T, text string) map[int]string {
	t.Helper()
	evidence := map[int]string{}
	for _, row := range rowOfVersions.FindAllStringSubmatch(text, -1) {
		var minor, last int
		if _, err := fmt.Sscan(row[1]+" "+cmp.Or(row[2], row[1]), &minor, &last); err != nil {
			t.Fatal(err)
		}
		for ; minor <= last; minor++ {
			if evidence[minor] != "" {
				t.Errorf("docs/support.md has two rows of 1.%d", minor)
			}
			evidence[minor] = row[3]
		}
	}
	return evidence
}

// TestSupport: the matrix has each version of Kubernetes that the chart accepts, and leaves out no recorded
// machine; README counts the machines.
func TestSupport(t *testing.T) {
	t.Parallel()
	text := read(t, "docs/support.md")
	number := func(file, pattern string) int {
		n, err := strconv.Atoi(match(t, file, pattern))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	oldest := number("deployments/helm/tandem/Chart.yaml", `kubeVersion: ">=1\.(\d+)\.0-0"`)
	newest, evidence := 0, evidenceByVersion(t, text)
	for _, file := range []string{"README.md", "docs/install.md"} {
		newest = number(file, `Kubernetes \| tested with 1\.\d+ and 1\.(\d+), `)
		if from := number(file, `Kubernetes \| .*, expected to work from 1\.(\d+) on `); from != oldest {
			t.Errorf("%s says that 1.%d works, the chart accepts 1.%d", file, from, oldest)
		}
		tested := number(file, `Kubernetes \| tested with 1\.(\d+) and `)
		for minor := tested; minor <= newest; minor++ {
			if evidence[minor] == "read" {
				t.Errorf("%s says that 1.%d was tested, docs/support.md that it was read about", file, minor)
			}
		}
	}
	for minor := oldest; minor <= newest; minor++ {
		if evidence[minor] == "" {
			t.Errorf("docs/support.md has no row of 1.%d", minor)
		}
	}
	recorded, derived := 0, 0
	for _, name := range machines.Names() {
		switch {
		case slices.Contains(machines.Hardware(), name):
			continue // a report is in the last column
		case strings.HasSuffix(name, "-derived"):
			derived++
		default:
			recorded++
		}
		if !strings.Contains(text, "`"+name+"`") {
			t.Errorf("docs/support.md does not name the recorded machine %s", name)
		}
	}
	want := fmt.Sprintf("| %d recorded, from public dumps; %d put together from", recorded, derived)
	if !strings.Contains(read(t, "README.md"), want) {
		t.Errorf("README.md does not have %q", want)
	}
}

// none is the cell of hardware without an accepted report.
const none = "none"

// nics are the PCI IDs of NICs by the row in docs/support.md. A NIC without a row is in the last one.
var nics = []struct {
	row    string
	vendor uint16
	ids    []uint16
}{
	{"ConnectX-7", 0x15b3, []uint16{0x1021}},
	{"ConnectX-6, ConnectX-6 Dx", 0x15b3, []uint16{0x101b, 0x101d, 0x101f}},
	{"ConnectX-8, ConnectX-9, BlueField-3", 0x15b3, []uint16{0x1023, 0x1025, 0xa2dc}},
	{"ConnectX-5", 0x15b3, []uint16{0x1017, 0x1019}},
	{"Broadcom Thor 2", 0x14e4, []uint16{0x1760}},
	{"EFA", 0x1d0f, []uint16{0xefa0, 0xefa1, 0xefa2, 0xefa3}},
	{"any SR-IOV NIC", 0, nil},
}

// TestRealHardware: the column "Real hardware" of docs/support.md lists the accepted reports of tandem
// qualify by their GPUs and NICs; -update writes it.
func TestRealHardware(t *testing.T) {
	text := read(t, "docs/support.md")
	golden.Check(t, filepath.Join(root, "docs/support.md"), withHardware(t, text, machines.Hardware()))
	if onReal := "It has not run on real hardware yet"; len(machines.Hardware()) > 0 {
		if strings.Contains(read(t, "README.md"), onReal) {
			t.Error("README.md says that Tandem has not run on real hardware")
		}
	}
}

// TestHardwareOfReports: a report is in the rows of its GPUs and NICs, with the evidence that passed, and in
// no other row.
func TestHardwareOfReports(t *testing.T) {
	t.Parallel()
	text := read(t, "docs/support.md")
	for _, name := range machines.Emulated() {
		got := map[string]string{}
		for line := range strings.Lines(withHardware(t, text, []string{name})) {
			if row, cells := rowOf(line); strings.Contains(line, "`"+name+"`") {
				got[row] = cells[len(cells)-1]
			}
		}
		m, err := machines.Load(name, 0)
		if err != nil {
			t.Fatal(err)
		}
		gpus, nics := rows(t, m)
		if len(gpus) == 0 || len(nics) == 0 || len(got) != len(gpus)+len(nics) {
			t.Errorf("%s: rows %v, GPUs %v, NICs %v", name, got, gpus, nics)
		}
		for _, row := range append(gpus, nics...) {
			if !strings.HasPrefix(got[row], "`"+name+"` (") {
				t.Errorf("%s: row %s has %q", name, row, got[row])
			}
		}
	}
}

// withHardware returns the page with the reports in the last column of the tables of hardware.
func withHardware(t *testing.T, text string, names []string) string {
	t.Helper()
	byRow := map[string][]string{}
	for _, name := range names {
		m, err := machines.Load(name, 0)
		if err != nil {
			t.Fatal(err)
		}
		gpus, nics := rows(t, m)
		for _, row := range append(gpus, nics...) {
			byRow[row] = append(byRow[row], fmt.Sprintf("`%s` (%s)", name, evidence(t, name)))
		}
	}
	var out strings.Builder
	inTable := false
	for line := range strings.Lines(text) {
		row, cells := rowOf(line)
		switch {
		case len(cells) == 0:
			inTable = false
		case cells[len(cells)-1] == "Real hardware":
			inTable = true
		case inTable && !strings.HasPrefix(row, "---"):
			cells[len(cells)-1] = none
			if reports := byRow[row]; len(reports) > 0 {
				cells[len(cells)-1] = strings.Join(reports, ", ")
				delete(byRow, row)
			}
			line = strings.ReplaceAll("| "+strings.Join(cells, " | ")+" |\n", "|  |", "| |")
		}
		out.WriteString(line)
	}
	for row, reports := range byRow {
		t.Errorf("docs/support.md has no row %q for %v", row, reports)
	}
	return out.String()
}

// rowOf returns the cells of a line of a table, and the first one; none for another line.
func rowOf(line string) (first string, cells []string) {
	inner, isRow := strings.CutPrefix(strings.TrimSpace(line), "|")
	if !isRow {
		return "", nil
	}
	for cell := range strings.SplitSeq(strings.TrimSuffix(inner, "|"), "|") {
		cells = append(cells, strings.TrimSpace(cell))
	}
	return cells[0], cells
}

// rows returns the rows of a machine's GPUs and NICs with RDMA. The row of a GPU begins with its vendor, and
// one of the models there begins the model of the GPU.
func rows(t *testing.T, m *recording.Machine) (gpus, withRDMA []string) {
	t.Helper()
	tree, err := topology.Read(m.FS())
	if err != nil {
		t.Fatal(err)
	}
	add := func(list []string, row string) []string {
		if slices.Contains(list, row) {
			return list
		}
		return append(list, row)
	}
	for d := range tree.Devices() {
		switch {
		case gpu.Vendor(d) != "":
			gpus = add(gpus, rowOfGPU(t, d))
		case d.IsNIC() && !d.IsVF() && len(d.RDMA) > 0:
			withRDMA = add(withRDMA, rowOfNIC(d))
		}
	}
	return gpus, withRDMA
}

func rowOfGPU(t *testing.T, d *topology.Device) string {
	maker, _ := gpu.MakerOf(gpu.Vendor(d))
	model := gpu.Model(d)
	for line := range strings.Lines(read(t, "docs/support.md")) {
		row, _ := rowOf(line)
		models, ok := strings.CutPrefix(row, maker.Title+" ")
		if !ok {
			continue
		}
		for name := range strings.SplitSeq(models, ", ") {
			if strings.HasPrefix(model, name) {
				return row
			}
		}
	}
	return maker.Title + " " + model
}

func rowOfNIC(d *topology.Device) string {
	for _, n := range nics {
		if d.Vendor == n.vendor && slices.Contains(n.ids, d.Product) {
			return n.row
		}
	}
	return nics[len(nics)-1].row
}

// evidence returns the version of Tandem and the evidence of a report that passed beyond the machine itself.
func evidence(t *testing.T, name string) string {
	t.Helper()
	text, err := machines.Report(name)
	if err != nil {
		t.Fatal(err)
	}
	r, err := qualify.Read(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	list := []string{r.Tandem}
	for _, result := range r.Results {
		if result.Verdict == "passed" && result.Part != "machine" {
			list = append(list, result.Part)
		}
	}
	return strings.Join(list, ", ")
}
