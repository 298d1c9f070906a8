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
	newest, err := strconv.Atoi(match(t, "README.md", `Kubernetes \| 1\.\d+ to 1\.(\d+) `))
	if err != nil {
		t.Fatal(err)
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
