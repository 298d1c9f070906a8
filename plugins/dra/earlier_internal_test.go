// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/plugins/dra/claims"
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/gpu/amd"
	"github.com/tandem-k8s/tandem/plugins/rdma"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/test/machines"
)

// Recorded machines: with a GPU on each switch, and with 32 partitions on each.
const oci, smc = "oci-mi300x-derived", "amd-mi300x-smc-thor2-cpx-derived"

// earlier is a node between the allocation and the preparation of a claim.
type earlier struct {
	full, machine pool.Machine
	options       pool.Options
	gates         features
	prepared      []claims.Claim
	view          *view
	preparer      *claims.Preparer
}

func newEarlier(t *testing.T, name string, vfs int) *earlier {
	t.Helper()
	sys, tree := machines.Read(t, name, vfs)
	machine, err := pool.ReadMachine(sys, tree, nil)
	if err != nil {
		t.Fatal(err)
	}
	machine.Pools[0].Resource = &pools.ResourceConfig{}
	backend, err := amd.New(sys, amd.Single)
	if err != nil {
		t.Fatal(err)
	}
	gpus, err := gpu.Discover(backend, 0, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	return &earlier{
		preparer: claims.New(claims.Options{
			Dir: filepath.Join(dir, "plugin"), CDIDir: filepath.Join(dir, "cdi"), GPUs: gpus,
			Host: rdma.Host{
				Sys: sys, Dev: fstest.MapFS{"infiniband/rdma_cm": &fstest.MapFile{}},
				DevinfoDir: filepath.Join(dir, "devinfo"), PairsDir: filepath.Join(dir, "pairs"),
			},
			Alone: true, Log: slog.New(slog.DiscardHandler),
		}),
		full: machine, machine: machine, options: pool.Options{VFsPerPF: pool.DefaultVFsPerPF},
		gates: features{Known: true, Counters: true, Taints: true},
	}
}

// look builds the next view of a process.
func (e *earlier) look() {
	options := e.options
	if e.view != nil {
		options.WasSound = e.view.listSound()
	}
	known := kubelet.Read(claims.Present(e.machine, e.prepared), nil)
	e.view = newView(e.machine, observation{Gates: e.gates, prepared: known}, options)
}

// restart builds the first view of a new process, with so many VFs of a PF.
func (e *earlier) restart(limit int) {
	e.view, e.options.VFsPerPF = nil, limit
	e.look()
}

// show leaves those VFs that a condition holds for.
func (e *earlier) show(is func(id string) bool) {
	e.machine.VFs = slices.DeleteFunc(slices.Clone(e.full.VFs), func(vf pool.VF) bool { return !is(vf.ID) })
	e.look()
}

// spoil makes VFs unhealthy, and all others healthy.
func (e *earlier) spoil(ids ...string) {
	e.machine.VFs = slices.Clone(e.full.VFs)
	for i := range e.machine.VFs {
		if slices.Contains(ids, e.machine.VFs[i].ID) {
			e.machine.VFs[i].Fault = "the RDMA port is not active"
		}
	}
}

// switchCounters switches the feature gate.
func (e *earlier) switchCounters(on bool) {
	e.gates.Counters = on
	e.look()
}

// vfDevice names the device of a VF alone.
func vfDevice(id string) string {
	return "vf-" + strings.NewReplacer("0000:", "", ":", "-", ".", "-").Replace(id)
}

// hold prepares a claim for a VF, and makes all VFs healthy.
func (e *earlier) hold(vf string) {
	e.prepared = []claims.Claim{{
		UID: "uid", Devices: []claims.Prepared{{Device: vfDevice(vf), VFs: []string{vf}}},
	}}
	e.spoil()
	e.look()
}

// prepare prepares claims of a pod, each with the name of its device.
func (e *earlier) prepare(devices ...string) error {
	var list []*resourceapi.ResourceClaim
	for _, device := range devices {
		claim := &resourceapi.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: device, UID: types.UID(device)},
			Status:     resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{}},
		}
		claim.Status.Allocation.Devices.Results = []resourceapi.DeviceRequestAllocationResult{
			{Request: "r", Driver: pool.Driver, Device: device},
		}
		list = append(list, claim)
	}
	_, err := e.preparer.Prepare(e.view.State, list, kubelet.Read([]*corev1.Pod{{}}, nil))
	return err
}

// end unprepares a claim.
func (e *earlier) end(device string) error {
	return e.preparer.Unprepare([]kubeletplugin.NamespacedObject{{UID: types.UID(device)}})
}

func anyVF(string) bool { return true }

func firstVF(id string) bool { return strings.HasSuffix(id, ".1") }

// A claim that was allocated a device gets it, in whatever form its parts are published now. Otherwise the
// pod waits until somebody deletes it.
func TestDeviceOfEarlierClaim(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		machine string
		vfs     int
		before  func(*earlier)
		device  string
		then    func(*earlier)
		gpus    int
		vf      string
	}{
		"further VFs appear": {
			oci, 3, func(e *earlier) { e.show(firstVF) }, "pair-11-00-0-0c-00-1",
			func(e *earlier) { e.show(anyVF) }, 1, "0000:0c:00.1",
		},
		"a VF alone becomes part of a pair": {
			oci, 3, func(e *earlier) { e.show(firstVF) }, "vf-0c-00-1",
			func(e *earlier) { e.show(anyVF) }, 0, "0000:0c:00.1",
		},
		"a restart with a higher limit": {
			oci, 3, func(e *earlier) { e.restart(1) }, "pair-11-00-0-0c-00-1",
			func(e *earlier) { e.restart(0) }, 1, "0000:0c:00.1",
		},
		"a restart with a lower limit": {
			oci, 3, func(e *earlier) { e.restart(0) }, "pair-11-00-0",
			func(e *earlier) { e.restart(1) }, 1, "0000:0c:00.1",
		},
		"VFs go": {
			oci, 3, func(e *earlier) { e.restart(0) }, "pair-11-00-0",
			func(e *earlier) { e.show(firstVF) }, 1, "0000:0c:00.1",
		},
		"ports become active after a boot": {
			smc, 3, func(e *earlier) { e.spoil("0000:23:00.1", "0000:23:00.2"); e.restart(0) },
			"pair-27-00-0-p0-23-00-3", func(e *earlier) { e.spoil(); e.look() }, 1, "0000:23:00.3",
		},
		"a restart while a VF of others is unhealthy": {
			smc, 2, func(e *earlier) { e.restart(0); e.spoil("0000:23:00.1"); e.look() }, "pair-27-00-0-p1-23-00-2",
			func(e *earlier) { e.restart(0) }, 1, "0000:23:00.2",
		},
		"a claim has a VF beyond the limit": {
			smc, 16, func(e *earlier) { e.spoil("0000:23:00.1"); e.restart(8) }, "pair-27-00-0-p0-23-00-2",
			func(e *earlier) { e.hold("0000:23:01.1") }, 1, "0000:23:00.2",
		},
		"the counters go": {
			"amd-mi250-16gcd-8nic", 3, func(e *earlier) { e.restart(0) }, "pair-11-00-0",
			func(e *earlier) { e.switchCounters(false) }, 1, "0000:0b:00.2",
		},
		"the counters come": {
			oci, 3, func(e *earlier) { e.switchCounters(false) }, "gpu-vf-11-00-0",
			func(e *earlier) { e.switchCounters(true) }, 1, "0000:0c:00.1",
		},
		"the bundles go": {
			smc, 16, func(e *earlier) { e.restart(0) }, "bundle-27-00-0",
			func(e *earlier) { e.switchCounters(false) }, 8, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEarlier(t, c.machine, c.vfs)
			c.before(e)
			before, published := e.view.State.Pool.Devices[c.device]
			if !published {
				t.Fatalf("%s is not published: this shows nothing", c.device)
			}
			c.then(e)
			d, _ := e.view.State.Pool.Find(e.view.State.Machine, c.device)
			if d.Type != before.Type || len(d.GPUs) != c.gpus || c.vf != "" && !slices.Equal(d.VFs, []string{c.vf}) {
				t.Errorf("the claim for %s has %+v", c.device, d)
			}
		})
	}
}

// Two claims were allocated the same GPU or VF, because a publication between both has it in another device:
// the driver may only get claims by name, and knows of none before it is prepared. Both get a VF of the
// switch, whichever is prepared first. A claim waits only where the switch has no other free VF, and for a
// GPU, and as long as the other claim lasts.
func TestPartOfTwoClaims(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		machine string
		vfs     int
		before  func(*earlier)
		device  string // that is published, and allocated
		then    func(*earlier)
		other   string // that is published then, and allocated
		also    string // a device of the second pod
		waits   bool
	}{
		"further VFs appear": {
			oci, 3, func(e *earlier) { e.show(firstVF) }, "vf-0c-00-1",
			func(e *earlier) { e.show(anyVF) }, "pair-11-00-0", "vf-0c-00-2", false,
		},
		"a restart while the VF of the pair is unhealthy": {
			oci, 3, func(e *earlier) { e.restart(0); e.spoil("0000:0c:00.1"); e.look() }, "vf-0c-00-2",
			func(e *earlier) { e.restart(0) }, "pair-11-00-0", "vf-0c-00-3", true,
		},
		"the VF of the pair goes": {
			oci, 3, func(e *earlier) { e.restart(0) }, "vf-0c-00-2",
			func(e *earlier) { e.show(func(id string) bool { return id != "0000:0c:00.1" }) },
			"pair-11-00-0", "", false,
		},
		"a claim has a VF beyond the limit": {
			smc, 16, func(e *earlier) { e.spoil("0000:23:00.1"); e.restart(8) }, "vf-23-00-2",
			func(e *earlier) { e.hold("0000:23:01.1") }, "pair-27-00-0-p1", "", false,
		},
		"the counters go": {
			oci, 3, func(e *earlier) { e.show(firstVF) }, "vf-0c-00-1",
			func(e *earlier) { e.switchCounters(false); e.show(anyVF) }, "gpu-vf-11-00-0", "", false,
		},
		"the counters go, and the switch has one VF": {
			oci, 1, func(e *earlier) { e.restart(0) }, "vf-0c-00-1",
			func(e *earlier) { e.switchCounters(false) }, "gpu-vf-11-00-0", "", true,
		},
		"the counters go, after a GPU": {
			oci, 3, func(e *earlier) { e.restart(0) }, "gpu-11-00-0",
			func(e *earlier) { e.switchCounters(false) }, "gpu-vf-11-00-0", "", true,
		},
		"a claim of the GPU alone ends": {
			oci, 3, func(e *earlier) {
				e.prepared = []claims.Claim{{UID: "uid", Devices: []claims.Prepared{
					{Device: "gpu-11-00-0", GPUs: []string{"0000:11:00.0"}},
				}}}
				e.switchCounters(false)
			}, "gpu-11-00-0", func(e *earlier) { e.prepared = nil; e.look() }, "gpu-vf-11-00-0", "", true,
		},
	} {
		for _, reversed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s %t", name, reversed), func(t *testing.T) {
				t.Parallel()
				e := newEarlier(t, c.machine, c.vfs)
				c.before(e)
				_, one := e.view.State.Pool.Devices[c.device]
				c.then(e)
				_, two := e.view.State.Pool.Devices[c.other]
				if !one || !two {
					t.Fatalf("published are %s %t, %s %t: this shows nothing", c.device, one, c.other, two)
				}
				first, second := c.device, []string{c.other}
				if reversed {
					first, second = c.other, []string{c.device}
				}
				if c.also != "" {
					second = append(second, c.also)
				}
				if err := e.prepare(first); err != nil {
					t.Fatal(err)
				}
				if err := e.prepare(second...); (err != nil) != c.waits {
					t.Fatalf("%s after %s: %v", second, first, err)
				}
				if c.waits {
					if err := errors.Join(e.end(first), e.prepare(second...)); err != nil {
						t.Fatalf("%s after the end of %s: %v", second, first, err)
					}
				}
				known, err := e.preparer.Prepared(e.machine)
				if err != nil {
					t.Fatal(err)
				}
				has := map[string]string{}
				for _, claim := range known {
					for _, id := range slices.Concat(claim.Devices[0].GPUs, claim.Devices[0].VFs) {
						if has[id] != "" || claim.Name == c.also && vfDevice(id) != c.also {
							t.Errorf("%s of %s and %s", id, claim, has[id])
						}
						has[id] = claim.Name
					}
				}
			})
		}
	}
}
