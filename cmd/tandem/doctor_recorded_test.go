// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/test/golden"
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
		if code != exitFound && code != exitUnknown || stderr != "" {
			t.Errorf("%s: exit code %d, standard error %q", file, code, stderr)
		}
		validate(t, "doctor", stdout)
		if !strings.Contains(stdout, `"id": "recording"`) {
			t.Errorf("%s: the report does not say what is unknown: %s", file, stdout)
		}
	}
	code, stdout, _ := run("doctor", "--machine", recorded("amd-mi250-16gcd-8nic"))
	if code != exitFound {
		t.Errorf("exit code %d", code)
	}
	golden.Check(t, "testdata/doctor-recorded.txt", stdout)
}

// TestDoctorOfARecordingWithVFs: only what no recording has is unknown; flags of a node are refused.
func TestDoctorOfARecordingWithVFs(t *testing.T) {
	t.Parallel()
	machine, config := withVFs(t, "oci-mi300x-derived", 1), write(t, "config.json", everyVF)
	code, stdout, stderr := run("doctor", "--machine", machine, "--config", config)
	if code != exitUnknown || !strings.HasSuffix(stdout, "\n1 found: errors 0, warnings 0, unknown 1\n") {
		t.Errorf("exit code %d, %s%s", code, stdout, stderr)
	}
	for _, flag := range []string{
		"--cpus=3", "--sysfs-root=/sys", "--kubelet-dir=/x", "--drop-in", "--run-dir=/x",
	} {
		name, _, _ := strings.Cut(flag, "=")
		code, _, stderr := run("doctor", "--machine", machine, flag)
		if code != cli.ExitUsage || !strings.Contains(stderr, "--machine and "+name+" exclude each other") {
			t.Errorf("%s: exit code %d, %q", flag, code, stderr)
		}
	}
}
