// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/test/golden"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/test/playground"
	"github.com/tandem-k8s/tandem/test/programs"
)

// runInTime runs a command, and repeats it where an answer of the coordinator was late, as on a busy machine.
func runInTime(args ...string) (code int, stdout, stderr string) {
	for range 5 {
		code, stdout, stderr = run(args...)
		if !strings.Contains(stdout, "a plugin has answered alone") {
			break
		}
	}
	return code, stdout, stderr
}

// tandem runs the program tandem and returns its output. The command may end with findings.
func tandem(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command(filepath.Join(programs.Build(t, "tandem"), "tandem"), args...).Output()
	var ended *exec.ExitError
	if err != nil && (!errors.As(err, &ended) || ended.ExitCode() <= cli.ExitUsage) {
		t.Fatalf("tandem %s: %v", strings.Join(args, " "), err)
	}
	return string(out)
}

// shortDir returns a folder with a path that is short enough for sockets.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "p")
	ready(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// varying matches what differs from run to run. A busy machine answers the first question of a container
// late: then the Allocate of the other half is refused.
var varying = regexp.MustCompile(`PID \d+, (?:serves|joined)|answered after [^,\n]*|\d{4}-\d\d-\d\dT[0-9:.]+Z|` +
	`allocate \S+: rpc error: .*?: alignment|/[^ ]*/p\d+/[^ ]*?-play-\d+|pairs/[A-Z2-7]+`)

// TestPlay: scripts on recorded machines. The temporary folder is gone at the end.
func TestPlay(t *testing.T) {
	t.Setenv("TMPDIR", shortDir(t))
	bin := programs.Build(t, "tandem", "tandem-gpu", "tandem-rdma")
	golden.Script{
		Run: func(args []string) (code int, stdout, stderr string) {
			code, stdout, stderr = runInTime(append(args[1:], "--programs", bin)...)
			return code, varying.ReplaceAllString(stdout, "…"), varying.ReplaceAllString(stderr, "…")
		},
		Word: recorded,
	}.Check(t, "testdata/play.txt")
	checkRemoved(t)
}

// checkRemoved checks that no playground is left in the temporary folder.
func checkRemoved(t *testing.T) {
	t.Helper()
	if left, err := filepath.Glob(filepath.Join(os.TempDir(), "tandem-play-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestPlayScripts: a failed command ends a script, with the number of its line. A mistake is no failure that
// "!" expects.
func TestPlayScripts(t *testing.T) {
	ground, err := playground.Open(playground.Options{
		Machine: recorded("oci-mi300x-derived"), Programs: programs.Build(t, "tandem", "tandem-gpu", "tandem-rdma"),
	})
	ready(t, err)
	defer func() {
		if err := ground.Close(); err != nil {
			t.Error(err)
		}
	}()
	ready(t, ground.Start(t.Context()))
	var shown strings.Builder
	failing := playground.Prompt{
		In: strings.NewReader("list\n\nverify away\nlist"), Out: &shown, Errors: io.Discard,
	}
	if err := failing.Run(t.Context(), ground); err == nil || strings.Count(shown.String(), "> list") != 1 ||
		!strings.Contains(err.Error(), `line 3: pod "away": no such pod`) {
		t.Errorf("%v, %q", err, &shown)
	}
	var asked []string
	files := playground.Prompt{
		In:  strings.NewReader("qualify --check node.json\ntopo --machine=x --all"),
		Out: io.Discard, Errors: io.Discard,
		Tandem: func(_ context.Context, args ...string) error {
			asked = append(asked, strings.Join(args, " "))
			return nil
		},
	}
	if err := files.Run(t.Context(), ground); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"qualify --check node.json", "topo --machine=x --all"}, asked); diff != "" {
		t.Errorf("commands on files (-want +got):\n%s", diff)
	}
	p := player{options: playground.Options{Programs: programs.Build(t, "tandem")}}
	for line, want := range map[string]string{
		"list":              "list: it succeeded",
		"fly":               `unknown command "fly"; help lists the commands`,
		"run":               "want run POD [gpu=N] [vf=N] [required]",
		"run a":             "want run POD [gpu=N] [vf=N] [required]",
		"run A_B gpu=1":     `name "A_B" of a pod: want lower-case letters`,
		"run a required":    "pod a requests nothing",
		"run a cpu=1":       `request "cpu=1": want gpu=NUMBER, vf=NUMBER or required`,
		"run a gpu=0":       `request "gpu=0": want`,
		"run a gpu=1 gpu=2": `request "gpu=2": the pod requests amd.com/gpu twice`,
		"list pods":         "want list",
		"restart all":       "want restart gpu|rdma|kubelet",
		"fail":              "want fail DEVICE",
		"heal":              "want heal DEVICE...",
		"fail 0000:08:00.0": `device "0000:08:00.0": want a GPU, NIC or VF as in status -o wide, or`,
		"":                  `want a command after "!"`,
		"status -o svg":     "invalid argument",
		"explain --all=x":   "invalid argument",
	} {
		prompt := playground.Prompt{
			In: strings.NewReader("! " + line), Out: io.Discard, Errors: io.Discard,
			Tandem: func(ctx context.Context, args ...string) error { return p.tandem(ctx, newRoot(), args) },
		}
		if err := prompt.Run(t.Context(), ground); err == nil || !strings.HasPrefix(err.Error(), "line 1: "+want) {
			t.Errorf("! %s: %v, want %q", line, err, want)
		}
	}
}

// TestPlayHeal: healed devices are offered again, after the minute that the daemons wait.
func TestPlayHeal(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the daemons wait for a minute")
	}
	code, stdout, stderr := run("play", "--programs", programs.Build(t, "tandem", "tandem-gpu", "tandem-rdma"),
		"--machine", recorded("oci-mi300x-derived"), "--directory", filepath.Join(shortDir(t), "node"), "--script",
		write(t, "script.txt", `
fail 0000:0c:00.0
degrade 0000:11:00.0
fail 0000:11:00.0
! run a gpu=8
heal 0000:0c:00.0 0000:0c:00.0 0000:11:00.0
run a gpu=8 vf=8
`))
	for _, want := range []string{
		"pod a: TopologyAffinityError",
		"NIC 0000:0c:00.0: good, with 1 device of tandem.dev/rdma_vf\n",
		"GPU 0000:11:00.0: good, with 1 device of amd.com/gpu\n", "verified: 8 GPUs, 8 VFs",
	} {
		if code != cli.ExitOK || !strings.Contains(stdout, want) {
			t.Errorf("exit code %d, %q, standard error %q; want %q", code, stdout, stderr, want)
		}
	}
}

// TestPlayServe: the page shows the pods, also after the end of a script, until play ends.
func TestPlayServe(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out, in := io.Pipe()
	root, ended := newRoot(), make(chan error, 1)
	root.SetArgs([]string{
		"play", "--machine", recorded("oci-mi300x-derived"), "--serve", ":0", "--programs",
		programs.Build(t, "tandem", "tandem-gpu", "tandem-rdma"), "--directory", filepath.Join(shortDir(t), "node"),
		"--script", write(t, "script.txt", "! run late gpu=9\nrun train gpu=2 vf=2\n"),
	})
	root.SetOut(in)
	go func() {
		err := root.ExecuteContext(ctx)
		_ = in.Close() // always nil
		ended <- err
	}()
	lines := bufio.NewScanner(out)
	var url string
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "verified") {
		if text, found := strings.CutSuffix(lines.Text(), " shows this node until Ctrl-C"); found {
			url = text
		}
	}
	answer, err := http.Get(url)
	if err != nil {
		t.Fatalf("%v; play: %v", err, lines.Err())
	}
	defer answer.Body.Close()
	page, err := io.ReadAll(answer.Body)
	for _, want := range []string{"<title>oci-mi300x-derived</title>", "default/train/main", "GPUs free 6/8",
		`data-owner="default/late/"`} {
		if err != nil || !bytes.Contains(page, []byte(want)) {
			t.Errorf("the page lacks %q: %v", want, err)
		}
	}
	answer, err = http.Get(url + "explain?owner=default/late/")
	ready(t, err)
	defer answer.Body.Close()
	page, err = io.ReadAll(answer.Body)
	rejected := []byte("default/late was rejected by the kubelet's Topology Manager")
	if err != nil || !bytes.HasPrefix(page, rejected) {
		t.Errorf("the explanation of a rejected pod: %v, %s", err, page)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if answer, err := http.Get(url); err == nil {
		t.Errorf("the page is served after the end: %s", answer.Status)
	}
}

// TestPlayEnds: an end before the daemons are ready, and the end of standard input, is no error and leaves
// nothing; the page of --serve keeps no pipe waiting.
func TestPlayEnds(t *testing.T) {
	bin := programs.Build(t, "tandem", "tandem-gpu", "tandem-rdma")
	for name, after := range map[string]time.Duration{"interrupted": 0, "end of a pipe": 2 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("TMPDIR", shortDir(t))
			ctx, stop := context.WithTimeout(t.Context(), after)
			defer stop()
			root := newRoot()
			root.SetArgs([]string{
				"play", "--machine", recorded("oci-mi300x-derived"), "--programs", bin, "--serve", ":0",
			})
			root.SetOut(io.Discard)
			root.SetIn(strings.NewReader("run train gpu=1\n"))
			if err := root.ExecuteContext(ctx); err != nil {
				t.Error(err)
			}
			if after > 0 && ctx.Err() != nil {
				t.Error("play goes on after the end of the pipe")
			}
			checkRemoved(t)
		})
	}
}

// TestPlayUsedPort: a port in use is an error before the folder is filled, so that a second try succeeds.
func TestPlayUsedPort(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	ready(t, err)
	defer listener.Close()
	folder := filepath.Join(shortDir(t), "node")
	code, _, stderr := run("play", "--machine", recorded("oci-mi300x-derived"), "--directory", folder,
		"--serve", listener.Addr().String())
	if code != cli.ExitError || !strings.Contains(stderr, "address already in use") {
		t.Errorf("exit code %d, %q", code, stderr)
	}
	if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder: %v", err)
	}
}

// TestPlayOnMac: the plugins start on Linux alone.
func TestPlayOnMac(t *testing.T) {
	t.Parallel()
	err := (&player{}).check("darwin")
	if err == nil || !strings.Contains(err.Error(), "need Linux, not darwin") {
		t.Errorf("on a Mac: %v", err)
	}
}

// TestPlayRefused: what play refuses before it starts anything.
func TestPlayRefused(t *testing.T) {
	full := t.TempDir()
	dir := shortDir(t) // of a random length
	long := filepath.Join(dir, strings.Repeat("x", 76-len(dir)))
	ready(t, os.WriteFile(filepath.Join(full, "file"), nil, 0o600))
	broken := t.TempDir()
	for _, name := range []string{"tandem-gpu", "tandem-rdma"} {
		program := "#!/bin/sh\necho it does not work >&2\nexit 3\n"
		ready(t, os.WriteFile(filepath.Join(broken, name), []byte(program), 0o700))
	}
	t.Setenv("TMPDIR", shortDir(t))
	golden.Script{
		Run: func(args []string) (code int, stdout, stderr string) { return run(args[1:]...) },
		Word: func(name string) string {
			switch name {
			case "full":
				return full
			case "long":
				return long
			case "empty":
				return t.TempDir()
			default:
				return recorded(name)
			}
		},
	}.Check(t, "testdata/play-refused.txt")
	code, _, stderr := run("play", "--machine", recorded("oci-mi300x-derived"), "--programs", broken)
	if code != cli.ExitError || !strings.Contains(stderr, "has ended\ntandem-") {
		t.Errorf("programs that do not work: exit code %d, %q", code, stderr)
	}
	checkRemoved(t)
}

// TestPlayLayout: --layout-only writes the machine that was recorded, and the folders that daemons want, with
// the device nodes of the vendor's driver, of which doctor misses none.
func TestPlayLayout(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ present, absent []string }{
		"oci-mi300x-derived": {
			[]string{"dev/dri/renderD128", "dev/infiniband/uverbs0", "dev/kfd", "kubelet/config.yaml", "config.json"},
			[]string{"dev/nvidiactl"},
		},
		"nv-h100-oci": {
			[]string{"dev/nvidiactl", "dev/nvidia0", "dev/nvidia7",
				"proc/driver/nvidia/gpus/0000:0f:00.0/information"},
			[]string{"dev/kfd"},
		},
	} {
		dir := filepath.Join(shortDir(t), "node")
		got := succeed(t, "play", "--machine", recorded(name), "--layout-only", "--directory", dir)
		if got != dir+"\n" {
			t.Errorf("%s: printed %q", name, got)
		}
		again := tandem(t, "topo", "--sysfs-root", filepath.Join(dir, "sys"), "-o", "json")
		if diff := cmp.Diff(tandem(t, "topo", "--machine", recorded(name), "-o", "json"), again); diff != "" {
			t.Errorf("%s laid out (-recorded +laid out):\n%s", name, diff)
		}
		want, err := fs.ReadFile(machines.Sys(t, name, 0), "devices/system/node/online")
		nodes, gotErr := os.ReadFile(filepath.Join(dir, "sys/devices/system/node/online"))
		if err != nil || gotErr != nil || !bytes.Equal(want, nodes) {
			t.Errorf("%s: online nodes %q, %q: %v, %v", name, want, nodes, err, gotErr)
		}
		checkFiles(t, dir, c.present, c.absent)
		stdout := tandem(t, "doctor", "--sysfs-root", filepath.Join(dir, "sys"), "--dev-root",
			filepath.Join(dir, "dev"), "--kubelet-dir", filepath.Join(dir, "kubelet"), "--run-dir",
			filepath.Join(dir, "run"), "--proc-root", filepath.Join(dir, "proc"))
		if strings.Contains(strings.ReplaceAll(stdout, dir, ""), "/dev/") || !strings.Contains(stdout, "warnings") {
			t.Errorf("%s: doctor misses device nodes: %s", name, stdout)
		}
	}
}

// checkFiles checks which files a folder has.
func checkFiles(t *testing.T, dir string, present, absent []string) {
	t.Helper()
	for _, file := range present {
		if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
			t.Error(err)
		}
	}
	for _, file := range absent {
		if _, err := os.Stat(filepath.Join(dir, file)); err == nil {
			t.Errorf("there is a file %s", file)
		}
	}
}
