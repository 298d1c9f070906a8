// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/test/scale"
	"github.com/tandem-k8s/tandem/test/simulate"
)

// simulatedNodes are the flags of the nodes in docs/performance.md, by the start of a row.
var simulatedNodes = map[string][]string{
	"A":     {"--node", "A"},
	"C":     {"--node", "C"},
	"MI250": {"--machine", recorded("amd-mi250-16gcd-8nic")},
}

// intervals are half the widths of the confidence intervals in docs/performance.md, by load.
var intervals = map[float64]float64{60: 0.6, 90: 2.7}

// TestDocumentedPairs: simulations with fewer seeds give the table of pairs in docs/performance.md.
func TestDocumentedPairs(t *testing.T) {
	page := readPage(t, "performance")
	if said := fmt.Sprintf("at most ± %g at 60 %%, ± %g at 90 %%", intervals[60],
		intervals[90]); !strings.Contains(page, said) {
		t.Errorf("docs/performance.md has other confidence intervals than %v", intervals)
	}
	const pair = ` ([\d.]+) / ([\d.]+) \|`
	rows := regexp.MustCompile(`(?m)^\| (?:(\w+): [^|]*)?\| (\d+) \|`+pair+pair+pair+`$`).
		FindAllStringSubmatch(page, -1)
	if len(rows) != 6 {
		t.Fatalf("docs/performance.md has %d rows of pairs", len(rows))
	}
	node := ""
	for _, row := range rows {
		node = cmp.Or(row[1], node)
		report := simulated(t, append(simulatedNodes[node], "--vfs-per-pf", row[2])...)
		for i, way := range []string{"stock", "tandem-unknown", "tandem"} {
			for j, load := range report.Loads {
				where := fmt.Sprintf("node %s, %s VFs per NIC, %g %%, %s", node, row[2], load.Load, way)
				compareEstimate(t, where, figures(t, load, way).PIX, row[3+2*i+j], load.Load)
			}
		}
	}
}

// TestDocumentedHints: simulations with and without NUMA hints give the table in docs/tune.md.
func TestDocumentedHints(t *testing.T) {
	rows := regexp.MustCompile(`(?m)^\| (\d+) \| (\d+) % \| ([\d.]+) / ([\d.]+) \| ([\d.]+) / ([\d.]+) \|$`).
		FindAllStringSubmatch(readPage(t, "tune"), -1)
	if len(rows) != 3 {
		t.Fatalf("docs/tune.md has %d rows of hints", len(rows))
	}
	for _, row := range rows {
		for column, flag := range []string{"--exclude-topology=false", "--exclude-topology"} {
			report := simulated(t, "--node", "A", "--vfs-per-pf", row[1], flag)
			i := slices.IndexFunc(report.Loads, func(l simulate.Load) bool { return fmt.Sprint(l.Load) == row[2] })
			f := figures(t, report.Loads[i], "tandem")
			where := fmt.Sprintf("%s VFs per NIC, %s %%, %s", row[1], row[2], flag)
			compareEstimate(t, where+", pairs", f.PIX, row[3+column], report.Loads[i].Load)
			compareEstimate(t, where+", rejected", f.Refused, row[5+column], report.Loads[i].Load)
		}
	}
}

// simulated returns the report of a simulation at 60 and 90 % load.
func simulated(t *testing.T, flags ...string) (report simulate.Report) {
	t.Helper()
	code, stdout, stderr := runInTime(append([]string{"simulate", "--load", "60,90", "-o", "json",
		"--ways", "stock,tandem-unknown,tandem", "--arrivals", "500", "--warmup", "100",
		"--seeds", fmt.Sprint(scale.Rounds(10))}, flags...)...)
	if code != cli.ExitOK {
		t.Fatalf("%q: exit code %d: %s", flags, code, stderr)
	}
	if err := json.Unmarshal([]byte(stdout), &report); err != nil || len(report.Loads) != 2 {
		t.Fatalf("%q: %v\n%s", flags, err, stdout)
	}
	return report
}

// figures returns the figures of a way at a load.
func figures(t *testing.T, load simulate.Load, way string) simulate.Figures {
	t.Helper()
	for _, w := range load.Ways {
		if w.Name == way {
			return w.Figures
		}
	}
	t.Fatalf("no way %s", way)
	return simulate.Figures{}
}

// compareEstimate expects a documented percentage in the confidence interval of an estimate. The interval is
// wider by a half, as few seeds are not normally distributed, by the interval of the document and by a
// rounding error.
func compareEstimate(t *testing.T, where string, e *simulate.Estimate, documented string, load float64) {
	t.Helper()
	want, err := strconv.ParseFloat(documented, 64)
	ready(t, err)
	if within := 1.5**e.CI + intervals[load] + 0.5; math.Abs(e.Mean-want) > within {
		t.Errorf("%s: the document says %s, and this is %.1f ± %.1f", where, documented, e.Mean, within)
	}
}

func readPage(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile("../../docs/" + name + ".md")
	ready(t, err)
	return string(content)
}
