// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"slices"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/plugins/dra/claims"
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
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
}

func newEarlier(t *testing.T, name string, vfs int) *earlier {
	t.Helper()
	recorded, err := machines.Load(name, vfs)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := topology.Read(recorded.FS())
	if err != nil {
		t.Fatal(err)
	}
	machine, err := pool.ReadMachine(recorded.FS(), tree, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &earlier{
		full: machine, machine: machine, options: pool.Options{VFsPerPF: pool.DefaultVFsPerPF},
		gates: features{Known: true, Counters: true, Taints: true},
	}
}

// look builds the next view of a process.
func (e *earlier) look() {
	options := e.options
	if e.view != nil {
		options.FailedLater = e.view.failedLater(e.machine)
	}
	e.view = newView(e.machine, observation{Gates: e.gates, prepared: kubelet.Read(e.prepared, nil)}, options)
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

// hold prepares a claim for a VF, and makes all VFs healthy.
func (e *earlier) hold(vf string) {
	name := "vf-" + strings.NewReplacer("0000:", "", ":", "-", ".", "-").Replace(vf)
	e.prepared = []claims.Claim{{UID: "uid", Namespace: "team", Name: "first", Devices: []claims.Prepared{
		{Request: "r", Device: name, VFs: []string{vf}},
	}}}
	e.spoil()
	e.look()
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
