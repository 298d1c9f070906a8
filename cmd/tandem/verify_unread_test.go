// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
)

// unprivileged returns a container on the machine with DMA functions that cannot read a vpd file, with the
// first GPU and a VF.
func unprivileged(t *testing.T, vf string) *pod {
	t.Helper()
	p := newPod(t, "nv-gb200-oke-derived", 1)
	readable := p.path("sys")
	target, err := os.Readlink(readable)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(readable); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cp", "-al", target, readable).CombinedOutput(); err != nil {
		t.Fatalf("copy: %v %s", err, out)
	}
	files, err := filepath.Glob(p.path("sys/bus/pci/devices/*/vpd"))
	if err != nil || len(files) == 0 {
		t.Fatalf("vpd files %q: %v", files, err)
	}
	for _, file := range files {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	return p.nvidia(0).vfs(vf)
}

// TestVerifyWithoutVPD: the NIC of a DMA function is unknown to a container, unless the pairs file names it.
func TestVerifyWithoutVPD(t *testing.T) {
	const near, trusted = "0000:03:00.2", "by pairs.json alone"
	code, stdout, stderr := newPod(t, "nv-gb200-oke-derived", 1).nvidia(0).vfs(near).verify()
	if code != cli.ExitOK || strings.Contains(stdout, trusted) {
		t.Errorf("root: exit code %d, %s%s", code, stdout, stderr)
	}
	code, stdout, stderr = unprivileged(t, near).verify()
	if code != cli.ExitError || !strings.Contains(stdout, "UNK") ||
		!strings.Contains(stderr, "distance of GPU 0008:06:00.0 and VF "+near+" is unknown") {
		t.Errorf("no file: exit code %d, %s%s", code, stdout, stderr)
	}
	p := unprivileged(t, near)
	p.file("run/tandem/pairs.json", `{"version": 1, "pairs": [{"gpu": {"id": "GPU-0", "address": "0008:06:00.0", `+
		`"resource": "nvidia.com/gpu"}, "vf": {"id": "`+near+`", "address": "`+near+`", "resource": "a/b"}, `+
		`"distance": "PIX"}]}`)
	code, stdout, stderr = p.verify()
	if code != cli.ExitOK || !strings.Contains(stdout, trusted) ||
		!strings.Contains(stdout, "pairs.json agrees") {
		t.Errorf("with the file: exit code %d, %s%s", code, stdout, stderr)
	}
}

// TestVerifyOtherNIC: a NIC that has no DMA function has a known distance, the one of tandem topo.
func TestVerifyOtherNIC(t *testing.T) {
	p := unprivileged(t, "0002:03:00.2")
	product := p.path("sys/bus/pci/devices/0002:03:00.0/device")
	if err := os.Remove(product); err != nil { // the file is a link to that of the machine
		t.Fatal(err)
	}
	if err := os.WriteFile(product, []byte("0x101b\n"), 0o600); err != nil { // ConnectX-6
		t.Fatal(err)
	}
	p.args = append(p.args, "--within", "NODE")
	if code, stdout, stderr := p.verify(); code != cli.ExitOK || !strings.Contains(stdout, "NODE") {
		t.Errorf("exit code %d, %s%s", code, stdout, stderr)
	}
}
