// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestSupport: the matrix has a row for each version of Kubernetes that the chart accepts, and leaves out no
// recorded machine.
func TestSupport(t *testing.T) {
	t.Parallel()
	text := read(t, "docs/support.md")
	oldest, err := strconv.Atoi(match(t, "deployments/helm/tandem/Chart.yaml", `kubeVersion: ">=1\.(\d+)\.0-0"`))
	if err != nil {
		t.Fatal(err)
	}
	number := func(file, pattern string) int {
		n, err := strconv.Atoi(match(t, file, pattern))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	newest := 0
	for _, file := range []string{"README.md", "docs/install.md"} {
		newest = number(file, `Kubernetes \| tested with 1\.\d+ and 1\.(\d+), `)
		if from := number(file, `Kubernetes \| .*, expected to work from 1\.(\d+) on `); from != oldest {
			t.Errorf("%s says that 1.%d works, the chart accepts 1.%d", file, from, oldest)
		}
		tested := number(file, `Kubernetes \| tested with 1\.(\d+) and `)
		for minor := tested; minor <= newest; minor++ {
			if row := "\n| 1." + strconv.Itoa(minor) + " | read"; strings.Contains(text, row) {
				t.Errorf("%s says that 1.%d was tested, docs/support.md that it was read about", file, minor)
			}
		}
	}
	for minor := oldest; minor <= newest; minor++ {
		if row := "\n| 1." + strconv.Itoa(minor) + " |"; strings.Count(text, row) != 1 {
			t.Errorf("docs/support.md has not one row %q", row)
		}
	}
	machines, err := filepath.Glob(filepath.Join(root, "test/machines/*.txt"))
	if err != nil || len(machines) < 10 {
		t.Fatalf("%q, %v", machines, err)
	}
	for _, machine := range machines {
		if name := strings.TrimSuffix(filepath.Base(machine), ".txt"); !strings.Contains(text, "`"+name+"`") {
			t.Errorf("docs/support.md does not name the recorded machine %s", name)
		}
	}
}
