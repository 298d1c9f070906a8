// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/tandem-k8s/tandem/test/kubelettest"
)

// follow counts what the kernel of this machine tells of from now on, for the time of a test. There is one
// socket, or, where carriers are watched, there are two.
func follow(t *testing.T, list string, sockets int) <-chan struct{} {
	t.Helper()
	told := make(chan struct{}, 1024)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- MachineEvents("/sys", config(t, list))(ctx, func() {
			select {
			case told <- struct{}{}:
			default:
			}
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("events ended with %v", err)
		}
	})
	for range sockets {
		kubelettest.Await(t, told)
	}
	return told
}

// provoke writes to a file of the kernel's, which tells of it.
func provoke(t *testing.T, told <-chan struct{}, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0); err != nil {
		t.Skipf("the kernel cannot be asked for an event: %v", err)
	}
	kubelettest.Await(t, told)
}

// The real kernel tells of a PCI function, which root can make it do
// (Documentation/ABI/testing/sysfs-uevent).
func TestKernelTellsOfPCI(t *testing.T) {
	files, err := filepath.Glob("/sys/bus/pci/devices/*/uevent")
	if err != nil || len(files) == 0 {
		t.Skip("this machine has no PCI function")
	}
	provoke(t, follow(t, resources(`{"resourceName": "a", "checkHealthOnPf": true}`), 2), files[0], "change")
}

// The real kernel tells of a NIC that comes: one of netdevsim, where there is such a thing. Its VFs are no
// PCI functions, so that nothing is selected.
func TestKernelTellsOfNetdevsim(t *testing.T) {
	const bus = "/sys/bus/netdevsim"
	if _, err := os.Stat(bus); err != nil {
		t.Skipf("the kernel of this machine has no netdevsim (modprobe netdevsim): %v", err)
	}
	told := follow(t, resources(`{"resourceName": "a"}`), 1)
	t.Cleanup(func() { _ = os.WriteFile(bus+"/del_device", []byte("4242"), 0) })
	if err := os.WriteFile(bus+"/new_device", []byte("4242 1"), 0); err != nil {
		t.Skipf("netdevsim makes no device: %v", err)
	}
	netdevs, err := filepath.Glob(bus + "/devices/netdevsim4242/net/*/uevent")
	if err != nil || len(netdevs) == 0 {
		t.Fatalf("netdevsim made no netdev: %v", err)
	}
	provoke(t, told, netdevs[0], "change")
}
