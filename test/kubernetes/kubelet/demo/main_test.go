// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/test/nvml"
	"github.com/tandem-k8s/tandem/test/programs"
)

// totals matches the last lines of the demo.
var totals = regexp.MustCompile(`same pods: (\d+) of (\d+) \(([\d.]+) %\) with Tandem, where (\d+) can be, ` +
	`(\d+) of \d+ \(([\d.]+) %\) uncoordinated\.\nAll (\d+) placements are the best`)

// TestDocumentedDemo: the demo prints what docs/performance.md shows and README quotes. A request has more
// than 20 pods until the kubelet has called each resource first, and uncoordinated plugins choose at
// random: totals may differ by a twentieth.
func TestDocumentedDemo(t *testing.T) {
	var out bytes.Buffer
	bin := programs.Build(t, "tandem-gpu", "tandem-rdma")
	err := run(t.Context(), []string{"--bin", bin, "--nvml", nvml.Library(t)}, &out)
	if err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	page, err := os.ReadFile("../../../../docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	got, documented := numbers(t, out.String()), numbers(t, string(page))
	for i := range got {
		if math.Abs(got[i]/documented[i]-1) > 0.05 {
			t.Errorf("the demo has %v, docs/performance.md %v", got, documented)
		}
	}
	if got[0] != got[3] {
		t.Errorf("%v pairs share a switch, %v can", got[0], got[3])
	}
	compareRows(t, string(page), out.String())
	checkQuoted(t, string(page), string(readme), out.String(), documented)
}

// numbers returns the numbers of the totals.
func numbers(t *testing.T, text string) (all []float64) {
	t.Helper()
	found := totals.FindStringSubmatch(text)
	if found == nil {
		t.Fatalf("no totals in\n%s", text)
	}
	for _, digits := range found[1:] {
		n, err := strconv.ParseFloat(digits, 64)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, n)
	}
	return all
}

// compareRows compares the documented rows of a machine with the printed ones: request and Tandem's
// distances.
func compareRows(t *testing.T, page, printed string) {
	t.Helper()
	_, block, _ := strings.Cut(page, "```text\n")
	rows := regexp.MustCompile(`(\d)\+\d +\d+ ([A-Z]+) {9}`).FindAllStringSubmatch(block, -1)
	_, own, _ := strings.Cut(printed, "oci-mi300x-derived, 1 VF per PF   ")
	if len(rows) != len(sizes) {
		t.Errorf("docs/performance.md has the rows %q", rows)
	}
	for _, row := range rows {
		want := fmt.Sprintf(`%[1]s\+%[1]s +\d+ %[2]s  `, row[1], row[2])
		if !regexp.MustCompile(want).MatchString(own[:min(len(own), 600)]) {
			t.Errorf("docs/performance.md has the row %q, the demo\n%s", row, own)
		}
	}
}

// checkQuoted compares what README and the page say about the totals.
func checkQuoted(t *testing.T, page, readme, printed string, documented []float64) {
	t.Helper()
	paired := map[string]bool{}
	for _, s := range setups {
		if s.VFsPerPF > 0 {
			paired[s.Machine] = true
		}
	}
	thousands := func(n float64) string { return fmt.Sprintf("%d,%03d", int(n)/1000, int(n)%1000) }
	for _, quote := range []string{
		fmt.Sprintf("on the %d servers with NICs about %s of %s pairs", len(paired), thousands(documented[0]),
			thousands(documented[1])),
		fmt.Sprintf("places pods on all %d servers", len(machineNames())),
		"about " + thousands(10*math.Round(documented[4]/10)) + " pairs share a switch",
	} {
		if !strings.Contains(strings.Join(strings.Fields(readme), " "), quote) {
			t.Errorf("README does not say %q", quote)
		}
	}
	without := regexp.MustCompile(`(?m)^  \w.* no switch to share`).FindAllString(printed, -1)
	rest := fmt.Sprintf("On the two servers of the other %v pairs", documented[1]-documented[0])
	if !strings.Contains(page, rest) || len(without) != 2 {
		t.Errorf("docs/performance.md does not say %q, and these share no switch: %q", rest, without)
	}
}
