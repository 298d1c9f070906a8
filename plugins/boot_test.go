// SPDX-License-Identifier: Apache-2.0

package plugins_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/coordination/pairs"
)

// bootID is the kernel's name of a boot (Documentation/admin-guide/sysctl/kernel.rst).
const bootID = "/proc/sys/kernel/random/boot_id"

// otherBoot runs a program as after a reboot: with another boot ID, in a mount namespace of its own.
func otherBoot(id string) []string {
	const mount = `mount --bind "$0" ` + bootID + ` && exec "$@"`
	return []string{"unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, id}
}

// needOtherBoot skips a test where no program can get another boot ID.
func needOtherBoot(t *testing.T) {
	t.Helper()
	command := append(otherBoot(bootID), "true")
	if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
		t.Skipf("no mount namespace with another boot ID: %v: %s", err, out)
	}
}

// reboot starts the next daemons after a boot.
func (n *node) reboot(t *testing.T) {
	t.Helper()
	n.write(t, "boot_id", "11111111-2222-4333-8444-555555555555\n")
	n.prefix = otherBoot(n.path("boot_id"))
}

// TestRDMAOfAnEarlierBoot: a VF had an RDMA device, and has none since the boot, because its RDMA driver is
// missing. No container holds the VF.
func TestRDMAOfAnEarlierBoot(t *testing.T) {
	needOtherBoot(t)
	s := newScene(t, "oci-mi300x-derived", 1, allVFs)
	id := s.vfAddresses(t)[0]
	isHealthy := func() bool {
		t.Helper()
		stop := s.runOne(t, "tandem-rdma")
		defer stop()
		return s.health[vfs][id] == v1beta1.Healthy
	}
	if !isHealthy() {
		t.Fatalf("%s is not offered", id)
	}
	for _, class := range []string{"net", "infiniband", "infiniband_verbs", "infiniband_mad"} {
		if err := os.RemoveAll(filepath.Join(s.function(id), class)); err != nil {
			t.Fatal(err)
		}
	}
	s.record(t, held("running", vfs, id))
	if !isHealthy() {
		t.Fatalf("%s, whose RDMA device is in a container, is not offered", id)
	}
	s.record(t)
	s.reboot(t)
	if s.withoutRunDir(t, isHealthy) {
		t.Fatalf("%s, which has no RDMA device, is offered without a run folder", id)
	}
	if isHealthy() {
		t.Errorf("%s, which has no RDMA device, is healthy after the boot", id)
	}
}

// withoutRunDir calls a function while the run folder is empty.
func (n *node) withoutRunDir(t *testing.T, call func() bool) bool {
	t.Helper()
	saved := n.runDir + "-saved"
	if err := os.Rename(n.runDir, saved); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(os.RemoveAll(n.runDir), os.Rename(saved, n.runDir)); err != nil {
			t.Fatal(err)
		}
	}()
	return call()
}

// TestPairsFileOfAnEarlierBoot: a boot changes the names of RDMA devices and netdevs. The kubelet restarts
// the containers with its stored answers.
func TestPairsFileOfAnEarlierBoot(t *testing.T) {
	needOtherBoot(t)
	s := newScene(t, "oci-mi300x-derived", 1, allVFs+`, "tandem": {"pairs": true}`)
	stop := s.runBoth(t)
	var files []string
	for i, pod := range []string{"a", "b"} {
		files = append(files, s.admitPair(t, pod, i))
	}
	for i, vf := range s.ids[vfs][:2] {
		s.rename(t, vf, "infiniband", fmt.Sprint("mlx5_9", i))
		s.rename(t, vf, "net", fmt.Sprint("eth9", i))
	}
	stop()
	if err := os.Remove(files[0]); err != nil { // as of a run folder in memory
		t.Fatal(err)
	}
	s.pods(running("a", onePair), running("b", onePair))
	s.reboot(t)
	s.begin(t)
	names := func(file string) string {
		got, err := pairs.Read(file)
		if err != nil || len(got.Pairs) != 1 {
			return ""
		}
		return got.Pairs[0].VF.RDMA + " " + got.Pairs[0].VF.Netdev
	}
	until(t, "the missing file is written", func() bool { return names(files[0]) == "mlx5_90 eth90" })
	late := time.After(time.Second)
	for names(files[1]) != "mlx5_91 eth91" {
		select {
		case <-late:
			t.Fatalf("%s has names of the boot before: %s", files[1], names(files[1]))
		case <-time.After(10 * time.Millisecond):
		}
	}
}
