// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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

// runAsNobody runs tandem without root's rights. The texts have UID for the user's number.
func runAsNobody(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	const nobody = 65534
	user := os.Geteuid()
	var out, problems bytes.Buffer
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), asCommand+"=1")
	cmd.Stdout, cmd.Stderr = &out, &problems
	if user == 0 {
		user = nobody
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	number := strings.NewReplacer(fmt.Sprint("ser ", user), "ser UID")
	return cmd.ProcessState.ExitCode(), number.Replace(out.String()), number.Replace(problems.String())
}

// open gives every user the rights to the run folder and the sockets.
func (s *sick) open() {
	s.t.Helper()
	s.check(os.Chmod(s.root, 0o755))
	s.check(os.Chmod(s.path("run"), 0o755))
	for _, pattern := range []string{"run/*.sock", "kubelet/*/*.sock"} {
		sockets, err := filepath.Glob(s.path(pattern))
		s.check(err)
		for _, socket := range sockets {
			s.check(os.Chmod(socket, 0o777))
		}
	}
}

// close takes everybody's rights to files and folders.
func (s *sick) close(names ...string) {
	s.t.Helper()
	for _, name := range names {
		s.check(os.Chmod(s.path(name), 0))
		s.t.Cleanup(func() { _ = os.Chmod(s.path(name), 0o700) }) // to be removed
	}
}

// TestDoctorsOwnFolder: the folder belongs to root on every node; other users do not get a finding for that.
func TestDoctorsOwnFolder(t *testing.T) {
	t.Parallel()
	s := layOut(t, sysfs(t, "oci-mi300x-derived", 1))
	s.check(os.Mkdir(s.path("run"), 0o755))
	s.open()
	if code, stdout, stderr := runAsNobody(t, s.command()...); code != cli.ExitOK && code != cli.ExitUnknown ||
		strings.Contains(stdout, "run-folder") {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
}
