// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/test/programs"
)

// playOn runs a script on a machine with the built daemons.
func playOn(t *testing.T, machine, script string, flags ...string) (code int, stdout, stderr string) {
	t.Helper()
	bin := programs.Build(t, "tandem-gpu", "tandem-rdma")
	t.Setenv("TMPDIR", shortDir(t))
	return run(append([]string{
		"play", "--programs", bin, "--machine", machine, "--script", write(t, "script.txt", script),
	}, flags...)...)
}

// shortDir returns a folder with a path that is short enough for sockets.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "p")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// varying matches what differs from run to run.
var varying = regexp.MustCompile(`PID \d+, (?:serves|joined)|answered after [^,\n]*|\d{4}-\d\d-\d\dT[0-9:.]+Z|` +
	`/tmp/p\d+/[^ ]*?-play-\d+|pairs/[A-Z2-7]+`)

// unsure matches what status tells for a while after a kubelet's restart.
var unsure = regexp.MustCompile(`(?m)^NOT ENFORCED .*\n`)

// TestPlay: scripts on recorded machines. The temporary folder is gone at the end.
func TestPlay(t *testing.T) {
	for _, c := range []struct {
		name, machine, script string
		flags                 []string
	}{
		{"nvidia", recorded("nv-gb300-aks-dma-derived"), `
run a gpu=2 vf=2 required
env a
restart gpu
run b gpu=1 vf=1
`, nil},
		{"far", recorded("nv-h200-vm-flat"), `
! run a gpu=1 vf=1 required
run a gpu=1 vf=1
! verify a
`, nil},
		{"pairs", recorded("oci-mi300x-derived"), `
run train gpu=2 vf=2 required # both on node 0
run infer gpu=4 vf=4
! run big gpu=3 vf=3
! run train gpu=1
list
env train
status
explain train
restart gpu
restart kubelet
restart rdma
doctor
delete infer
run next vf=1 gpu=1
run alone gpu=1
verify train
! verify infer
status -o wide
`, nil},
		{"partitions", recorded("amd-mi300x-smc-thor2-cpx-derived"), "run a gpu=8 vf=1\nstatus\n", nil},
		{"vfs", recorded("amd-mi250-16gcd-8nic"), "run a gpu=4 vf=4\nrun b gpu=4 vf=1\nrun c gpu=3\n" +
			"delete a\nrun d gpu=8 vf=8 required\nlist\n", []string{"--vfs=2"}},
		{"errors", recorded("oci-mi300x-derived"), `
help
! fly
! run
! run a
! run A_B gpu=1
! run a cpu=1
! run a gpu=0
! run a gpu=1 gpu=2
! run a gpu=9
! delete a
! list pods
! restart all
! !
! status -o svg
! explain ghost
! explain --all=x
quit
run a
`, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, stdout, stderr := playOn(t, c.machine, c.script, c.flags...)
			if code != exitOK {
				t.Errorf("exit code %d, standard error %q", code, stderr)
			}
			stdout = unsure.ReplaceAllString(stdout, "")
			golden(t, "play-"+c.name+".txt", varying.ReplaceAllString(stderr+stdout, "…"))
			checkRemoved(t)
		})
	}
}

// checkRemoved checks that no playground is left in the temporary folder.
func checkRemoved(t *testing.T) {
	t.Helper()
	if left, err := filepath.Glob(filepath.Join(os.TempDir(), "tandem-play-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestPlayScripts: a failed command ends a script, with the number of its line.
func TestPlayScripts(t *testing.T) {
	for script, want := range map[string]string{
		"list\nfly away\nlist": `line 2: unknown command "fly"; help lists the commands`,
		"! list":               "line 1: list: it succeeded",
		"status -o svg":        "line 1: invalid argument",
	} {
		code, stdout, stderr := playOn(t, recorded("oci-mi300x-derived"), script)
		if code != exitError || !strings.Contains(stderr, want) || strings.Count(stdout, "list") > 1 {
			t.Errorf("%q: exit code %d, %q, standard error %q; want %q", script, code, stdout, stderr, want)
		}
	}
}

// TestPlayRefused: what play refuses before it starts anything.
func TestPlayRefused(t *testing.T) {
	oci, full := recorded("oci-mi300x-derived"), t.TempDir()
	long := filepath.Join(shortDir(t), strings.Repeat("x", 60))
	if err := os.WriteFile(filepath.Join(full, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	broken := t.TempDir()
	for _, name := range []string{"tandem-gpu", "tandem-rdma"} {
		program := "#!/bin/sh\necho it does not work >&2\nexit 3\n"
		if err := os.WriteFile(filepath.Join(broken, name), []byte(program), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("TMPDIR", shortDir(t))
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"", exitUsage, "want a recorded machine: --machine FILE"},
		{"--machine " + oci + " --layout-only", exitUsage, "--layout-only needs --directory"},
		{"--machine " + oci + " --vfs 65", exitUsage, "--vfs 65: want 0 to 64"},
		{"--machine " + recorded("nv-a100pcie-cx6dx-vf-partial") + " --vfs 2", exitError,
			"partial.txt: the machine was recorded with VFs; omit --vfs"},
		{"--machine none.txt", exitError, "read machine: open none.txt: no such file or directory"},
		{"--machine " + oci + " --script none.txt", exitError, "read --script: open none.txt"},
		{"--machine " + oci + " --directory " + full, exitError, "it is not empty"},
		{"--machine " + oci + " --directory " + long, exitError, "bytes too long for the sockets in it"},
		{"--machine " + oci + " --directory " + t.TempDir() + "/a%zz", exitError, "no socket below a path with %"},
		{"--machine " + oci + " --directory " + t.TempDir() + "/a#b", exitError, "no socket below a path with %"},
		{"--machine " + oci + " --programs " + full, exitError, "start tandem-gpu: fork/exec"},
		{"--machine " + oci + " --programs " + broken, exitError, "has ended\ntandem-"},
		{"--machine " + recorded("amd-mi300x-cpx-kfd"), exitError, "the machine has no NIC with RDMA"},
	} {
		code, stdout, stderr := run(append([]string{"play"}, strings.Fields(c.args)...)...)
		if code != c.code || stdout != "" || !strings.Contains(stderr, c.want) {
			t.Errorf("tandem play %s: exit code %d, %q, %q; want %q", c.args, code, stdout, stderr, c.want)
		}
	}
	checkRemoved(t)
}

// TestPlayLayout: --layout-only writes the machine that was recorded, and the folders that daemons want.
func TestPlayLayout(t *testing.T) {
	t.Parallel()
	const name = "oci-mi300x-derived"
	dir := filepath.Join(shortDir(t), "node")
	got := succeed(t, "play", "--machine", recorded(name), "--layout-only", "--directory", dir)
	if got != dir+"\n" {
		t.Errorf("printed %q", got)
	}
	again := succeed(t, "topo", "--sysfs-root", filepath.Join(dir, "sys"), "-o", "json")
	if diff := cmp.Diff(succeed(t, "topo", "--machine", recorded(name), "-o", "json"), again); diff != "" {
		t.Errorf("the machine laid out (-recorded +laid out):\n%s", diff)
	}
	m, err := machines.Load(name, 0)
	if err != nil {
		t.Fatal(err)
	}
	want, err := fs.ReadFile(m.FS(), "devices/system/node/online")
	nodes, gotErr := os.ReadFile(filepath.Join(dir, "sys/devices/system/node/online"))
	if err != nil || gotErr != nil || !bytes.Equal(want, nodes) {
		t.Errorf("online nodes %q, %q: %v, %v", want, nodes, err, gotErr)
	}
	for _, file := range []string{
		"dev/dri/renderD128", "dev/infiniband/uverbs0", "kubelet/config.yaml", "config.json",
	} {
		if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
			t.Error(err)
		}
	}
}
