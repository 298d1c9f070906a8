// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
)

// asCommand makes the test's program run tandem itself.
const asCommand = "TANDEM_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	m.Run()
	for _, dir := range laidOut.folders {
		_ = os.RemoveAll(dir)
	}
}

// runAsNobody runs tandem without root's rights.
func runAsNobody(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	const nobody = 65534
	var out, problems bytes.Buffer
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), asCommand+"=1")
	cmd.Stdout, cmd.Stderr = &out, &problems
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), problems.String()
}

// close takes everybody's rights to files and folders.
func (s *sick) close(names ...string) {
	s.t.Helper()
	s.check(os.Chmod(s.root, 0o755))
	for _, name := range names {
		s.check(os.Chmod(s.path(name), 0))
		s.t.Cleanup(func() { _ = os.Chmod(s.path(name), 0o700) }) // to be removed
	}
}

// TestQuestionsWithoutRights: a missing permission is reported as such, not as an absent plugin.
func TestQuestionsWithoutRights(t *testing.T) {
	t.Parallel()
	for _, closed := range []string{"run", "run/coordination.sock"} {
		root, err := os.MkdirTemp("", "run")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(root) })
		s := &sick{t: t, root: root}
		runPlugins(t, s.path("run"))
		s.check(os.Chmod(s.path("run"), 0o755))
		s.close(closed)
		for _, args := range [][]string{{"status"}, {"explain", "team/train-0"}} {
			code, stdout, stderr := runAsNobody(t, append(args, "--run-dir", s.path("run"))...)
			if code != cli.ExitError || stdout != "" ||
				!strings.Contains(stderr, "has no permission; run the command as root") ||
				strings.Contains(stderr, "no answer") {
				t.Errorf("%s closed: %s: exit code %d, %q, %q", closed, args[0], code, stdout, stderr)
			}
		}
	}
}

// TestDoctorWithoutRights: an unreadable file counts as neither damaged nor missing. The only remedy is to be
// root.
func TestDoctorWithoutRights(t *testing.T) {
	t.Parallel()
	sys := sysfs(t, "oci-mi300x-derived", 1)
	for name, closed := range map[string][]string{
		"as on a node": {"run", "kubelet/device-plugins", "kubelet/pod-resources", "kubelet/cpu_manager_state",
			"kubelet/memory_manager_state"},
		"more":       {"kubelet", "dev"},
		"drop-ins":   {"drop-ins"},
		"a drop-in":  {"drop-ins/90-cloud.conf"},
		"checkpoint": {"kubelet/device-plugins/kubelet_internal_checkpoint"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := layOut(t, sys)
			runPlugins(t, s.path("run"))
			s.check(os.Chmod(s.path("run"), 0o755))
			s.checkpoint(`{"tandem.dev/rdma_vf": ["` + ociVF0 + `"]}`)
			s.write("drop-ins/90-cloud.conf", healthyKubelet)
			s.with("--kubelet-config-dir", s.path("drop-ins"))
			s.close(closed...)
			code, stdout, stderr := runAsNobody(t, s.command()...)
			if code != cli.ExitUnknown || stderr != "" || strings.Count(stdout, "UNKNOWN no-right: ") != 1 ||
				!strings.Contains(stdout, "\n1 found: ") {
				t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
			}
			for _, word := range []string{"rm ", "damaged", "No such", "systemctl"} {
				if strings.Contains(stdout, word) {
					t.Errorf("%q is said of what cannot be read:\n%s", word, stdout)
				}
			}
			for _, name := range closed {
				if !strings.Contains(stdout, s.path(name)) && len(closed) < 5 {
					t.Errorf("%s is not named:\n%s", name, stdout)
				}
			}
		})
	}
}

// TestDoctorsOwnFolder: the folder belongs to root on every node; other users do not get a finding for that.
func TestDoctorsOwnFolder(t *testing.T) {
	t.Parallel()
	s := layOut(t, sysfs(t, "oci-mi300x-derived", 1))
	s.check(os.Chmod(s.root, 0o755))
	s.check(os.Mkdir(s.path("run"), 0o755))
	if code, stdout, stderr := runAsNobody(t, s.command()...); code != cli.ExitOK && code != cli.ExitUnknown ||
		strings.Contains(stdout, "run-folder") {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
}
