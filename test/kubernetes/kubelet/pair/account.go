// SPDX-License-Identifier: Apache-2.0

package pair

import (
	"fmt"
	"os/exec"
	"syscall"
)

// inPod starts a program where the folder of its first argument lies at the path of a pod's service account,
// which client-go has built in. The host may not have that path: /run is another one in a mount namespace of
// the program's own, into which mounts of the host come, but none goes out.
const inPod = `account=$1; shift
mount --make-rslave / && mount -t tmpfs tmpfs /var/run && mkdir -p /var/run/secrets/kubernetes.io &&
	ln -s "$account" /var/run/secrets/kubernetes.io/serviceaccount && exec "$@"`

// command is a program that finds what a pod's service account is given in a folder; "" is for a program that
// needs none.
func command(account, path string, args ...string) *exec.Cmd {
	// A test that dies, even by its own timeout, takes its daemons along.
	attributes := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if account != "" {
		attributes.Cloneflags = syscall.CLONE_NEWNS
		path, args = "sh", append([]string{"-c", inPod, "sh", account, path}, args...)
	}
	command := exec.Command(path, args...)
	command.SysProcAttr = attributes
	return command
}

// CanHaveAccount returns why daemons cannot be given a service account's folder, which takes root; nil if
// they can.
func CanHaveAccount() error {
	if output, err := command("/", "true").CombinedOutput(); err != nil {
		return fmt.Errorf("give a program a service account: %w: %s", err, output)
	}
	return nil
}
