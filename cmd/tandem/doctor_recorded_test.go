// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
)

// TestDoctorOfRecordings: the report on each recorded machine matches the schema and says what is unknown.
func TestDoctorOfRecordings(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../test/machines/*.txt")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d machines, %v", len(files), err)
	}
	for _, file := range files {
		code, stdout, stderr := run("doctor", "--machine", file, "-o", "json")
		if code != cli.ExitFound && code != cli.ExitUnknown || stderr != "" {
			t.Errorf("%s: exit code %d, standard error %q", file, code, stderr)
		}
		validate(t, "doctor", stdout)
		if !strings.Contains(stdout, `"id": "recording"`) {
			t.Errorf("%s: the report does not say what is unknown: %s", file, stdout)
		}
	}
}
