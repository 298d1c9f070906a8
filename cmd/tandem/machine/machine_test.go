// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/test/functions"
	"github.com/tandem-k8s/tandem/test/machines"
)

// TestNoFunctionIsDropped: each network function of a machine is a NIC, a VF, a DMA function, or named in a
// note as left out.
func TestNoFunctionIsDropped(t *testing.T) {
	t.Parallel()
	all := map[string]fs.FS{"connectx7": functions.ConnectX7(functions.Bridges...).FS()}
	for _, name := range machines.Names() {
		m, err := machines.Load(name, 0)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = m.FS()
	}
	for name, sys := range all {
		n, err := ReadFS(sys, &Source{})
		if err != nil {
			t.Fatal(err)
		}
		for d := range n.Tree.Devices() {
			isDMA := d.Vendor == 0x15b3 && d.Product == 0x2100
			if d.Class.IsNetwork() && !slices.Contains(n.NICs, d) && !d.IsVF() && !isDMA &&
				!strings.Contains(strings.Join(n.Notes, "\n"), d.Address.String()) {
				t.Errorf("%s: %s is not among the NICs, and no note says so", name, d.Address)
			}
		}
	}
}

func TestChangedSince(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	long := time.Now().Add(-time.Hour)
	if err := os.Chtimes(file, long, long); err != nil { // a copy that keeps its times
		t.Fatal(err)
	}
	now := time.Now() // not before the last change: a file that changes later is one of the future
	const minute = time.Minute
	if got := (Process{Age: minute}).ChangedSince(now.Add(-minute), file); len(got) > 0 {
		t.Errorf("a file of the future: %q", got)
	}
	for age, want := range map[time.Duration]int{0: 0, time.Millisecond: 0, minute: 1} {
		if got := (Process{Age: age}).ChangedSince(now, file, file+".none"); len(got) != want {
			t.Errorf("of a process that runs for %v: %q", age, got)
		}
	}
}

// TestMarkDistances: distances have verdicts, and names of resources that end in the same words have none.
func TestMarkDistances(t *testing.T) {
	t.Parallel()
	const reason = "4 pairs: 1 PIX, 1 C2C, 2 SYS; resource a.b/NODE;"
	marked := MarkDistances(reason)
	var verdicts []cli.Cell
	for _, part := range marked {
		if part.Verdict != "" {
			verdicts = append(verdicts, cli.Cell{part})
		}
	}
	want := []cli.Cell{cli.Good.Of("PIX"), cli.Good.Of("C2C"), cli.Doubtful.Of("SYS")}
	if diff := cmp.Diff(want, verdicts); diff != "" || marked.String() != reason {
		t.Errorf("%s %s", marked, diff)
	}
}

// hintsRow counts, on recorded machines, the containers of k GPUs and k VFs that are refused with hints in
// any case and without the key, and the near pairs lost without the key.
type hintsRow struct{ refused, byRule, lost int }

// TestHintsOfMachines: without the key excludeTopology, no recorded machine refuses a container of k GPUs and
// k VFs while it is empty, and none has fewer near pairs. With hints in any case some do.
func TestHintsOfMachines(t *testing.T) {
	t.Parallel()
	for _, vfs := range []int{1, 2, 4, 8} {
		var row hintsRow
		for _, name := range machines.Names() {
			if m, err := machines.Load(name, vfs); err == nil { // a recording with VFs has its own number
				n, err := ReadFS(m.FS(), &Source{})
				if err != nil {
					t.Fatal(err)
				}
				row.add(t, n)
			}
		}
		if row.refused == 0 || row.byRule > 0 || row.lost > 0 {
			t.Errorf("%d VFs a NIC: %+v", vfs, row)
		}
	}
}

// add counts the requests of an empty machine: by the rule, and with hints in any case as the stock plugin
// has them. Pairs are lost where both admit the container, and fewer are near by the rule.
func (r *hintsRow) add(t *testing.T, n *Node) {
	t.Helper()
	all, _, err := n.VFPools("")
	if err != nil {
		t.Fatal(err)
	}
	vfs := Devices(all)
	if len(n.GPUDevices()) == 0 || len(vfs) == 0 {
		return
	}
	hinted := *n
	hinted.Stock = true
	for k := 1; k <= min(len(n.GPUDevices()), len(vfs)); k++ {
		q := Question{GPUs: uint(k), VFs: uint(k)}
		rule, _, err := q.Answer(n)
		if err != nil {
			t.Fatal(err)
		}
		always, _, err := q.Answer(&hinted)
		if err != nil {
			t.Fatal(err)
		}
		if rule.IsRejected() {
			r.byRule++
		}
		if always.IsRejected() {
			r.refused++
			continue
		}
		r.lost += near(always) - near(rule)
	}
}

// near returns the number of pairs on one switch.
func near(p *Plan) (count int) {
	for _, pair := range p.Pairs {
		if pair.Distance.Direct() {
			count++
		}
	}
	return count
}
