// SPDX-License-Identifier: Apache-2.0

package pair

import (
	"fmt"
	"os/exec"
	"syscall"
)

// inPod starts a program with the folder in its first argument at the path of a pod's service account, which
// is fixed in client-go. The host may lack that path: the program has a mount namespace with another /run,
// which receives mounts of the host but does not propagate its own.
const inPod = `account=$1; shift
mount --make-rslave / && mount -t tmpfs tmpfs /var/run && mkdir -p /var/run/secrets/kubernetes.io &&
	ln -s "$account" /var/run/secrets/kubernetes.io/serviceaccount && exec "$@"`

// command returns a program with a folder as its pod's service account, or without one for "".
func command(account, path string, args ...string) *exec.Cmd {
	// The daemons end with the test, even after a panic or timeout.
	attributes := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if account != "" {
		attributes.Cloneflags = syscall.CLONE_NEWNS
		path, args = "sh", append([]string{"-c", inPod, "sh", account, path}, args...)
	}
	command := exec.Command(path, args...)
	command.SysProcAttr = attributes
	return command
}

// CanHaveAccount returns the reason why daemons cannot have a service account's folder, which needs root, or
// nil.
func CanHaveAccount() error {
	if output, err := command("/", "true").CombinedOutput(); err != nil {
		return fmt.Errorf("give a program a service account: %w: %s", err, output)
	}
	return nil
}
