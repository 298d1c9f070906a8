// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package nvidia

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/test/nvml"
)

// discoverUntil discovers whenever Watch says so, until the unhealthy devices are these.
func discoverUntil(t *testing.T, backend *Backend, due <-chan struct{}, want ...string) {
	t.Helper()
	slices.Sort(want)
	limit := time.After(time.Minute)
	for got := []string{"not looked"}; !slices.Equal(got, want); {
		select {
		case <-due:
			got = unhealthy(t, backend)
		case <-limit:
			t.Fatalf("unhealthy %v, want %v", got, want)
		}
	}
}

// unhealthy discovers and returns the IDs of unhealthy devices; of resources that were there and are no
// longer "gone".
func unhealthy(t *testing.T, backend *Backend) []string {
	t.Helper()
	inventory := later(t, backend)
	if len(inventory.Resources) == 0 {
		return []string{"gone"}
	}
	for _, devices := range inventory.Resources {
		for _, d := range devices {
			if d.Healthy != (d.Reason == "") {
				t.Errorf("%s: healthy %t, reason %q", d.ID, d.Healthy, d.Reason)
			}
		}
	}
	return sick(inventory)
}

func TestXids(t *testing.T) {
	t.Attr("parity", "nvidia/health-xid")
	t.Attr("parity", "nvidia/health-replicas")
	n := record(t, "nv-h100-oci", various)
	backend, _ := n.discover(t, "--mig-strategy=mixed")
	due := watch(t, backend)
	whole, divided := n.Machine.GPUs[4], n.Machine.GPUs[0]
	for i := range n.Machine.GPUs {
		n.Machine.GPUs[i].Recovery = -1 // a driver that cannot say whether a GPU recovered
	}
	n.Update(t)
	n.Event(t, whole.UUID, nvml.Xid, 13, nvml.None, nvml.None)
	n.Event(t, divided.UUID, nvml.Xid, 48, uint32(divided.Slices[2].GI), 0)
	discoverUntil(t, backend, due, divided.Slices[2].UUID)
	n.Event(t, whole.UUID, nvml.Xid, 79, nvml.None, nvml.None)
	discoverUntil(t, backend, due, divided.Slices[2].UUID, whole.UUID)
	all := []string{whole.UUID}
	for _, s := range divided.Slices {
		all = append(all, s.UUID)
	}
	n.Event(t, divided.UUID, nvml.Xid, 48, nvml.None, nvml.None)
	discoverUntil(t, backend, due, all...)
}

func TestRecovery(t *testing.T) {
	t.Attr("parity", "nvidia/health-recovery")
	n := record(t, "nv-h100-oci", nil)
	backend, _ := n.discover(t, "--xid-recovery")
	due := watch(t, backend)
	first, second := &n.Machine.GPUs[1], &n.Machine.GPUs[2]
	first.Recovery, second.Recovery = 1, 1
	n.Update(t)
	n.Event(t, first.UUID, nvml.Xid, 48, nvml.None, nvml.None)
	n.Event(t, second.UUID, nvml.Xid, 94, nvml.None, nvml.None)
	discoverUntil(t, backend, due, first.UUID, second.UUID)
	first.Recovery = 0
	n.Update(t) // the driver says so when it is asked, at the next look
	discoverUntil(t, backend, due, second.UUID)
	second.Recovery = 0
	n.Update(t)
	n.Event(t, second.UUID, nvml.RecoveryAction, 0, nvml.None, nvml.None)
	discoverUntil(t, backend, due)
}

// TestNoRecovery: unless it is told otherwise the plugin believes no driver that a GPU is well after an Xid.
func TestNoRecovery(t *testing.T) {
	t.Attr("parity", "nvidia/health-recovery")
	n := record(t, "nv-h100-oci", nil)
	backend, _ := n.discover(t)
	backend.machine.Recheck = 0
	bad := n.Machine.GPUs[3].UUID
	backend.health.markBroken(bad, "Xid 48")
	backend.health.noteRecovery(bad)
	for range 3 {
		if got := unhealthy(t, backend); !slices.Equal(got, []string{bad}) {
			t.Fatalf("unhealthy %v, want %s", got, bad)
		}
	}
	anew, _ := n.discover(t)
	if got := unhealthy(t, anew); len(got) > 0 {
		t.Errorf("unhealthy after a new start %v", got)
	}
}

// However late discovery comes after an error, it shows it.
func TestErrorIsShownBeforeItIsForgiven(t *testing.T) {
	n := record(t, "nv-h100-oci", nil)
	backend, _ := n.discover(t, "--xid-recovery")
	backend.machine.Recheck = 0
	uuid := n.Machine.GPUs[3].UUID
	backend.health.markBroken(uuid, "Xid 48")
	if got := unhealthy(t, backend); !slices.Equal(got, []string{uuid}) {
		t.Errorf("unhealthy at first %v, want %s", got, uuid)
	}
	if got := unhealthy(t, backend); len(got) > 0 {
		t.Errorf("unhealthy afterwards %v", got)
	}
}

func TestGPUThatCannotBeWatched(t *testing.T) {
	n := record(t, "nv-h100-oci", func(m *nvml.Machine) {
		m.GPUs[1].Deaf = nvml.NotSupported // too old, and taken for healthy
		m.GPUs[6].Deaf = nvml.GPUIsLost
	})
	backend, _ := n.discover(t, "--xid-recovery")
	due := watch(t, backend)
	discoverUntil(t, backend, due, n.Machine.GPUs[6].UUID)
	n.Event(t, n.Machine.GPUs[0].UUID, nvml.Xid, 48, nvml.None, nvml.None)
	discoverUntil(t, backend, due, n.Machine.GPUs[0].UUID, n.Machine.GPUs[6].UUID)
	n.Machine.GPUs[6].Deaf = 0
	n.Update(t)
	discoverUntil(t, backend, due)
}

func TestGPULostAndBack(t *testing.T) {
	t.Attr("parity", "nvidia/preferred-broken-gpu")
	n := record(t, "nv-h100-oci", nil)
	backend, _ := n.discover(t)
	due := watch(t, backend)
	n.Machine.GPUs[5].State = nvml.GPUIsLost
	n.Update(t)
	n.Fail(t, nvml.GPUIsLost) // what waiting says once a GPU is lost
	for len(backend.health.lastCards()) == 0 || backend.health.lastCards()[5].err == nil {
		<-due
		unhealthy(t, backend)
	}
	// the others are listened to as before
	n.Event(t, n.Machine.GPUs[0].UUID, nvml.Xid, 48, nvml.None, nvml.None)
	discoverUntil(t, backend, due, n.Machine.GPUs[0].UUID)
	n.Machine.GPUs[5].State = 0
	n.Update(t)
	for backend.health.lastCards()[5].err != nil {
		<-due
		unhealthy(t, backend)
	}
}

func TestDriverUnloadsAndReturns(t *testing.T) {
	n := record(t, "nv-h100-oci", nil)
	backend, _ := n.discover(t)
	due := watch(t, backend)
	n.Machine.Error = nvml.DriverNotLoaded
	n.Update(t)
	discoverUntil(t, backend, due, "gone")
	n.Machine.Error = 0
	n.Update(t)
	discoverUntil(t, backend, due)
}

func TestMIGReconfigured(t *testing.T) {
	n := record(t, "nv-h100-oci", func(m *nvml.Machine) { m.GPUs[0].Split(7, 0, 9984) })
	backend, _ := n.discover(t, "--mig-strategy=mixed")
	due := watch(t, backend)
	n.Machine.GPUs[0].Slices = nil
	n.Machine.GPUs[0].Split(2, 2, 40320)
	n.Update(t)
	n.Event(t, n.Machine.GPUs[0].UUID, nvml.MIGChanged, 0, nvml.None, nvml.None)
	for got := ""; got != "gpu 7, mig-3g.40gb 2"; {
		select {
		case <-due:
		case <-time.After(10 * time.Second):
			t.Fatalf("no sign of a change from %q", got)
		}
		got = summary(later(t, backend))
	}
}

// TestNoNVMLWhileTheKubeletWaits records the names of all calls of the library.
func TestNoNVMLWhileTheKubeletWaits(t *testing.T) {
	trace := t.TempDir() + "/trace"
	n := record(t, "nv-h100-oci", func(m *nvml.Machine) {
		various(m)
		m.Trace = trace
	})
	backend, inventory := n.discover(t, "--mig-strategy=mixed", "--pass-device-specs")
	before := read(t, trace)
	if !strings.Contains(before, "nvmlDeviceGetNvLinkState") {
		t.Fatal("nothing is recorded")
	}
	for resource, devices := range inventory.Resources {
		if err := backend.Refuse(resource, devices, nil); err != nil {
			t.Error(err)
		}
		backend.Edits(devices)
		backend.Replicas()
	}
	if _, err := backend.Links(); err != nil {
		t.Error(err)
	}
	if after := read(t, trace); after != before {
		t.Errorf("NVML was called:\n%s", strings.TrimPrefix(after, before))
	}
}

// A panic ends the watch at once, also while the watch keeps CDI specifications: the caller watches again.
func TestWatchPanics(t *testing.T) {
	n := record(t, "nv-a100pcie-cx6dx-vf-partial", nil)
	n.install(t)
	backend, _ := n.discover(t, "--device-list-strategy=cdi-cri")
	panicked := make(chan any, 1)
	go func() {
		defer func() { panicked <- recover() }()
		_ = backend.Watch(context.Background(), func() { panic("changed") })
	}()
	select {
	case reason := <-panicked:
		if reason != "changed" {
			t.Errorf("the watch ended with %v", reason)
		}
	case <-time.After(time.Minute):
		t.Error("a minute after the panic the watch has not ended")
	}
}
