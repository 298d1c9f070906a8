// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// results are lines of "go test -json": "Test action", or "Test shows ROW", or "Test says TEXT".
func results(t *testing.T, lines ...string) string {
	t.Helper()
	var text bytes.Buffer
	for _, line := range lines {
		name, rest, _ := strings.Cut(line, " ")
		e := event{Action: rest, Package: module + "plugins/gpu/amd", Test: name}
		if row, ok := strings.CutPrefix(rest, "shows "); ok {
			e.Action, e.Key, e.Value = "attr", "parity", row
		}
		if said, ok := strings.CutPrefix(rest, "says "); ok {
			e.Action, e.Output = "output", said+"\n"
		}
		if err := json.NewEncoder(&text).Encode(e); err != nil {
			t.Fatal(err)
		}
	}
	return text.String()
}

func TestStates(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		lines []string
		want  string
	}{
		{"says so", []string{"TestA shows amd/device-id-gpu", "TestA pass"}, pass},
		{"named so", []string{"TestA/amd/device-id-gpu pass"}, pass},
		{"named with a comma", []string{"TestA/amd,device-id-gpu/single pass"}, pass},
		{"named with a blank", []string{"TestA/amd_device-id-gpu pass"}, pass},
		{"another feature", []string{"TestA/amd/device-id-gpu-2 pass"}, open},
		{"another plugin", []string{"TestA/nvidia/device-id-gpu pass"}, open},
		{"two, one fails",
			[]string{"TestA/amd/device-id-gpu pass", "TestB shows amd/device-id-gpu", "TestB fail"}, failed},
		{"does not end", []string{"TestA shows amd/device-id-gpu"}, failed},
		{"skipped",
			[]string{
				"TestA shows amd/device-id-gpu", "TestA says a_test.go:3: no C compiler",
				"TestA says --- SKIP: TestA", "TestA skip",
			}, skipped},
		{"one skipped",
			[]string{"TestA shows amd/device-id-gpu", "TestA skip", "TestB/amd/device-id-gpu pass"}, pass},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			tests, err := readTests(strings.NewReader("go: downloading\n" + results(t, c.lines...)))
			if err != nil {
				t.Fatal(err)
			}
			if got := judge([]row{{Name: "amd/device-id-gpu", Priority: must}}, tests)[0]; got.State != c.want {
				t.Errorf("%+v, want %s", got, c.want)
			}
		})
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	var table, text bytes.Buffer
	in := results(t, "TestA shows amd/device-id-gpu", "TestA pass", "TestB shows amd/topology",
		"TestB says no GPU here", "TestB skip")
	if err := report(&table, strings.NewReader(in), "table"); err == nil ||
		!strings.Contains(err.Error(), "rows that Tandem must fulfil are open") {
		t.Errorf("error %v", err)
	}
	for _, want := range []string{
		"TestA\n", "TestB (skipped: no GPU here)\n", "no test shows it", "must: ", " 1 pass", "should: ",
	} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("no %q in\n%s", want, &table)
		}
	}
	if strings.Contains(table.String(), "amd/labeller") {
		t.Error("a row that Tandem only could fulfil is in the report")
	}
	var verdicts []verdict
	if err := report(&text, strings.NewReader(in), "json"); err == nil {
		t.Error("no error")
	}
	if err := json.Unmarshal(text.Bytes(), &verdicts); err != nil || len(verdicts) < 90 {
		t.Errorf("%d verdicts, %v", len(verdicts), err)
	}
}

func TestReportPasses(t *testing.T) {
	t.Parallel()
	rows, err := readChecklist()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, r := range rows {
		if r.Priority == must {
			lines = append(lines, "TestAll/"+r.Name+" pass")
		}
	}
	if err := report(&bytes.Buffer{}, strings.NewReader(results(t, lines...)), "table"); err != nil {
		t.Error(err)
	}
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"": "make parity", "FAIL\tgithub.com/x [build failed]\n": "make parity",
	} {
		if err := report(&bytes.Buffer{}, strings.NewReader(in), "table"); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", in, err)
		}
	}
	in := results(t, "TestA shows amd/device-id-gpus", "TestA pass", "TestB shows amd/labeller", "TestB pass")
	if err := report(&bytes.Buffer{}, strings.NewReader(in), "table"); err == nil ||
		!strings.Contains(err.Error(), "checklist.csv: amd/device-id-gpus (plugins/gpu/amd TestA)") {
		t.Errorf("misnamed: %v", err)
	}
	if err := report(&bytes.Buffer{}, strings.NewReader(""), "xml"); err == nil ||
		!strings.Contains(err.Error(), `-o "xml"`) {
		t.Errorf("format: %v", err)
	}
}
