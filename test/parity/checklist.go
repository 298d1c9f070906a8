// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	_ "embed"
	"encoding/csv"
	"fmt"
)

// Priorities of rows.
const (
	must   = "must"
	should = "should"
	could  = "could" // may be shown, and is not reported
)

var (
	//go:embed checklist.csv
	checklistCSV []byte
	//go:embed reasons.csv
	reasonsCSV []byte
)

// row is a row of checklist.csv.
type row struct {
	Name     string `json:"name"` // "amd/device-id-gpu"
	Priority string `json:"priority"`
	Reason   string `json:"reason,omitempty"` // reason of reasons.csv for a missing test
}

// readChecklist reads all rows, in their order.
func readChecklist() ([]row, error) {
	lines, err := readCSV("checklist.csv", checklistCSV, 5) // plugin, feature, exact behaviour, source, priority
	if err != nil {
		return nil, err
	}
	reasons, err := readReasons()
	if err != nil {
		return nil, err
	}
	var rows []row
	for _, line := range lines {
		r := row{Name: line[0] + "/" + line[1], Priority: line[4]}
		r.Reason = reasons[r.Name]
		delete(reasons, r.Name)
		if r.Priority != must && r.Priority != should && r.Priority != could {
			return nil, fmt.Errorf("read checklist.csv: row %s has the priority %q", r.Name, r.Priority)
		}
		rows = append(rows, r)
	}
	for name := range reasons {
		return nil, fmt.Errorf("read reasons.csv: there is no row %s in checklist.csv", name)
	}
	return rows, nil
}

func readReasons() (map[string]string, error) {
	lines, err := readCSV("reasons.csv", reasonsCSV, 3) // plugin, feature, reason
	if err != nil {
		return nil, err
	}
	reasons := map[string]string{}
	for _, line := range lines {
		reasons[line[0]+"/"+line[1]] = line[2]
	}
	return reasons, nil
}

// readCSV reads a file with these columns, without its first line.
func readCSV(name string, content []byte, columns int) ([][]string, error) {
	reader := csv.NewReader(bytes.NewReader(content))
	reader.FieldsPerRecord = columns
	lines, err := reader.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if len(lines) == 0 {
		return nil, fmt.Errorf("read %s: it is empty", name)
	}
	return lines[1:], nil
}
