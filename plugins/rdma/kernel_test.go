package rdma

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// follow counts what the kernel of this machine tells of, for the time of a test.
func follow(t *testing.T, list string) <-chan struct{} {
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
	return told
}

// provoke writes to a file until the kernel tells of it: the socket is opened in the background.
func provoke(t *testing.T, told <-chan struct{}, file, text string) {
	t.Helper()
	retry := time.NewTicker(100 * time.Millisecond)
	defer retry.Stop()
	for limit := time.After(10 * time.Second); ; {
		if err := os.WriteFile(file, []byte(text), 0); err != nil {
			t.Skipf("the kernel cannot be asked for an event: %v", err)
		}
		select {
		case <-told:
			return
		case <-retry.C:
		case <-limit:
			t.Fatalf("nothing was told of %q in %s", text, file)
		}
	}
}

// The real kernel tells of a PCI function, which root can make it do (Documentation/ABI/testing/sysfs-uevent).
func TestKernelTellsOfPCI(t *testing.T) {
	files, err := filepath.Glob("/sys/bus/pci/devices/*/uevent")
	if err != nil || len(files) == 0 {
		t.Skip("this machine has no PCI function")
	}
	provoke(t, follow(t, resources(`{"resourceName": "a", "checkHealthOnPf": true}`)), files[0], "change")
}

// The real kernel tells of a NIC that comes: one of netdevsim, where there is such a thing. Its VFs are no PCI functions, so that
// nothing is selected.
func TestKernelTellsOfNetdevsim(t *testing.T) {
	const bus = "/sys/bus/netdevsim"
	if _, err := os.Stat(bus); err != nil {
		t.Skipf("the kernel of this machine has no netdevsim (modprobe netdevsim): %v", err)
	}
	told := follow(t, resources(`{"resourceName": "a"}`))
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
