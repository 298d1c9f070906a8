// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/test/golden"
)

// perftest puts programs into PATH that print a result at once: of bandwidth, in Gb/s by the RDMA device of
// the client, and of latency.
func perftest(t *testing.T, gbps map[string]string) {
	t.Helper()
	dir := t.TempDir()
	var cases strings.Builder
	for device, result := range gbps {
		cases.WriteString("*\"-d " + device + "\"*) gbps=" + result + " ;;\n")
	}
	for name, text := range map[string]string{
		"ib_write_bw": `echo "case $gbps: #bytes #iterations BW peak[Gb/sec] BW average[Gb/sec] MsgRate[Mpps]"
echo "1048576 5000 0.00 $gbps 0.02"`,
		"ib_read_lat": `echo "#bytes #iterations t_min[usec] t_max[usec] t_typical[usec] t_avg[usec]"
echo "8 1000 1.5 9.5 2.25 2.5"`,
	} {
		script := "#!/bin/sh\ncase \"$*\" in --help) echo '--ib-dev --size --use_rocm'; exit 1 ;;\n" +
			cases.String() + "esac\n" + text + "\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func TestVerifyTraffic(t *testing.T) {
	p := newPod(t, "oci-mi300x-derived", 1).amd(ociGPU0, ociGPU1).vfs(ociVF0, ociVF1)
	p.with("--traffic", "--color=always")
	perftest(t, map[string]string{"mlx5_8": "192.40", "mlx5_9": "78.90"})
	var shown colours

	code, stdout, stderr := p.verify()
	if code != cli.ExitError {
		t.Errorf("exit code %d", code)
	}
	golden.Check(t, "testdata/verify-traffic.txt", shown.strip(stdout))
	shown.check(t, "green PIX, green ok, red not verified, red slow")
	want := `pair 0 of 2: mlx5_8 to mlx5_8, memory gpu
pair 1 of 2: mlx5_9 to mlx5_9, memory gpu
tandem verify: pair 1: 41 % of the best pair, 78.90 of 192.40 Gb/s: no reason in sysfs
`
	if diff := cmp.Diff(want, stderr); diff != "" {
		t.Error(diff)
	}

	if code, _, stderr = p.with("--traffic-min", "40").verify(); code != cli.ExitOK {
		t.Errorf("exit code %d with a lower threshold: %s", code, stderr)
	}
	_, stdout, _ = p.with("-o", "json").verify()
	validate(t, "verify", stdout)
}

func TestVerifyTrafficWithoutPerftest(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	code, _, stderr := newPod(t, "oci-mi300x-derived", 1).amd(ociGPU0).vfs(ociVF0).with("--traffic").verify()
	if code != cli.ExitError ||
		!strings.Contains(stderr, "install perftest (Debian, Fedora: package perftest)") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}
