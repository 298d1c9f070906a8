// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"bytes"
	"log/slog"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/plugins/health"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/test/functions"
)

// A degraded device that is withheld has not failed: its pod would get the event DeviceFailed.
func TestWithheldHasNotFailed(t *testing.T) {
	pool := pools.Pool{Devices: []pools.Device{
		{ID: "degraded", Degraded: "slow", Selector: &pools.Selector{}},
		{ID: "failed", Fault: "down", Selector: &pools.Selector{}},
	}}
	for i, want := range []string{"", device.Failed} {
		d := presentDevices(pool)[i].Withhold()
		if got := device.Health(d.Encode()); got != want || forKubelet([]device.Device{d})[0].Healthy {
			t.Errorf("%s is %q, healthy %t", d.ID, got, d.Healthy)
		}
	}
}

// portDown is a PF with a VF, and a port that has lost its link.
func portDown() functions.Sysfs {
	s := functions.New()
	s.PF(0x81, "ens1", 1, nil)
	dir := functions.Dir("0000:81:00.0") + "/net/ens1/"
	s.Write(dir+"flags", "0x1003")
	s.Write(dir+"carrier", "0")
	s.Write(dir+"carrier_up_count", "1")
	return s
}

const portIsDown = "0000:81:00.1 netdev ens1 is without carrier"

// The first list of devices has their health: after a boot the kubelet allocates as soon as it has the list.
func TestFirstListHasHealth(t *testing.T) {
	s := portDown()
	vfs := find(t, s.FS(), resources(`{"resourceName": "a", "selectors": {"isRdma": true}}`), "intel.com", nil)
	vfs.Heed(health.New(health.Default(), s.FS()))
	if diff := cmp.Diff([]string{portIsDown}, state(vfs, "intel.com/a")); diff != "" {
		t.Error(diff)
	}
}

// A device that goes and comes back, as with a reset by its driver, keeps its state for the quiet time.
func TestHealthOutlastsTheDevice(t *testing.T) {
	s := portDown()
	s.Function("0000:82:00.0", functions.Facts{"class": "0x010000"}) // the folder of functions stays
	vfs := find(t, s.FS(), resources(`{"resourceName": "a", "selectors": {"isRdma": true}}`), "intel.com", nil)
	vfs.Heed(health.New(health.Default(), s.FS()))
	look := func() {
		vfs.scanAgain()
		vfs.health.Look()
	}
	unplugFrom(s, "0000:81:00.0", "0000:81:00.1")
	look()
	if diff := cmp.Diff([]string{"0000:81:00.1 gone"}, state(vfs, "intel.com/a")); diff != "" {
		t.Fatal(diff)
	}
	s.PF(0x81, "ens1", 1, nil)
	look()
	vfs.scanAgain()
	if diff := cmp.Diff([]string{portIsDown}, state(vfs, "intel.com/a")); diff != "" {
		t.Error(diff)
	}
}

// A scan that fails does not keep a failed port in the offer.
func TestFailedScanHasHealth(t *testing.T) {
	s := portDown()
	vfs := find(t, s.FS(), resources(`{"resourceName": "a", "selectors": {"isRdma": true}}`), "intel.com", nil)
	vfs.finder.Sys = os.DirFS(t.TempDir())
	vfs.health = health.New(health.Default(), s.FS())
	vfs.health.Watch(watchedBy(vfs.found))
	vfs.health.Look()
	vfs.scanAgain()
	if diff := cmp.Diff([]string{portIsDown}, state(vfs, "intel.com/a")); diff != "" {
		t.Error(diff)
	}
}

// A device with a fault of the configuration's checks is not degraded as well: the end of the degraded state
// would be logged as the end of the fault.
func TestFaultIsNotDegraded(t *testing.T) {
	s := portDown()
	s.Write(functions.Dir("0000:81:00.0")+"/net/ens1/carrier_up_count", "0") // degraded only
	list := resources(`{"resourceName": "a", "checkHealthOnPf": true, "selectors": {"isRdma": true}}`)
	vfs := find(t, s.FS(), list, "intel.com", nil)
	var log bytes.Buffer
	vfs.log = slog.New(slog.NewTextHandler(&log, nil))
	vfs.Heed(health.New(health.Default(), s.FS()))
	s.Write(functions.Dir("0000:81:00.0")+"/net/ens1/carrier_up_count", "1")
	vfs.health.Look()
	vfs.scanAgain()
	if diff := cmp.Diff([]string{"0000:81:00.1 no carrier on the PF"}, state(vfs, "intel.com/a")); diff != "" {
		t.Error(diff)
	}
	if log.Len() > 0 {
		t.Errorf("logged %s", log.String())
	}
}
