// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func recorded(t testing.TB, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// TestRecordedOutput reads the output of perftest 4.5 on software RDMA devices (rdma_rxe).
func TestRecordedOutput(t *testing.T) {
	for _, file := range []string{"write_bw-client.txt", "write_bw-server.txt"} {
		gbps, bytes, err := parseBandwidth(recorded(t, file))
		if err != nil || gbps != 0.26 || bytes != 64<<20 {
			t.Errorf("%s: %v, %d, %v", file, gbps, bytes, err)
		}
	}
	if got, err := parseLatency(recorded(t, "read_lat-client.txt")); err != nil || got != 57.08 {
		t.Errorf("%v, %v", got, err)
	}
	if !notServed(recorded(t, "not-served.txt")) {
		t.Error("not the output of a client without server")
	}
	for file, want := range map[string]string{
		"no-device.txt":     "or belongs to another network namespace)",
		"not-connected.txt": "two addresses of one network namespace itself)",
	} {
		if got := failureReason(recorded(t, file)); !strings.HasSuffix(got, want) {
			t.Errorf("%s: %s", file, got)
		}
	}
}

func TestNoResult(t *testing.T) {
	const heading = " #bytes #iterations BW peak[Gb/sec] BW average[Gb/sec] MsgRate[Mpps]\n"
	for name, output := range map[string]string{
		"empty":            "",
		"heading alone":    heading,
		"text":             heading + " 1048576 many 0.00 1.00 0.1\n",
		"short":            heading + " 1048576 64 0.00 1.00\n",
		"infinite":         heading + " 1048576 64 0.00 inf 0.1\n",
		"negative":         heading + " 1048576 64 0.00 -1 0.1\n",
		"too large":        heading + " 1e18 1e18 0.00 1 0.1\n",
		"nothing arrived":  heading + " 1048576    0           0.000000            0.000000            0.000000\n",
		"MiB per second":   strings.ReplaceAll(heading, "Gb", "MiB") + " 1048576 64 0.00 1.00 0.1\n",
		"another's result": recorded(t, "read_lat-client.txt"),
	} {
		if got, _, err := parseBandwidth(output); err == nil {
			t.Errorf("%s: %v", name, got)
		}
	}
	if got, err := parseLatency(recorded(t, "write_bw-client.txt")); err == nil {
		t.Error(got)
	}
}

func FuzzOutput(f *testing.F) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) < 5 {
		f.Fatal(files, err)
	}
	for _, file := range files {
		f.Add(recorded(f, filepath.Base(file)))
	}
	f.Fuzz(func(t *testing.T, output string) {
		if gbps, bytes, err := parseBandwidth(output); err == nil && (!(gbps > 0) || bytes > 1<<63) {
			t.Errorf("bandwidth %v, %d", gbps, bytes)
		}
		if got, err := parseLatency(output); err == nil && !(got >= 0) {
			t.Errorf("latency %v", got)
		}
		if got := failureReason(output); len(got) > 1000 {
			t.Errorf("a reason of %d bytes", len(got))
		}
		_ = checkGPU(output, &GPU{})
	})
}
