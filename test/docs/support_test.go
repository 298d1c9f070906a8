// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"cmp"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
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
	machines, err := filepath.Glob(filepath.Join(root, "test/machines/*.txt"))
	if err != nil || len(machines) < 10 {
		t.Fatalf("%q, %v", machines, err)
	}
	derived := 0
	for _, machine := range machines {
		if strings.HasSuffix(machine, "-derived.txt") {
			derived++
		}
		if name := strings.TrimSuffix(filepath.Base(machine), ".txt"); !strings.Contains(text, "`"+name+"`") {
			t.Errorf("docs/support.md does not name the recorded machine %s", name)
		}
	}
	want := fmt.Sprintf("| %d recorded, from public dumps; %d put together from", len(machines)-derived, derived)
	if !strings.Contains(read(t, "README.md"), want) {
		t.Errorf("README.md does not have %q", want)
	}
}
