// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/test/machines"
)

// A taint changes one slice: where more change the scheduler cannot use the node meanwhile.
func TestAFaultChangesOneSlice(t *testing.T) {
	t.Parallel()
	everywhere(t, few, func(t *testing.T, machine pool.Machine, options pool.Options) {
		before := pool.Build(machine, options)
		changed := func(what string, after pool.Pool) {
			t.Helper()
			n := 0
			for i, slice := range after.Slices {
				if len(after.Slices) == len(before.Slices) && !reflect.DeepEqual(slice, before.Slices[i]) {
					n++
				}
			}
			if lost := len(before.Slices) - len(after.Slices); n > 1 || lost > 1 {
				t.Errorf("%s: %d slices changed, %d are gone", what, n, lost)
			}
		}
		for i := 0; i < len(machine.GPUs); i += 1 + len(machine.GPUs)/4 {
			m := machine
			m.GPUs = slices.Clone(m.GPUs)
			m.GPUs[i].Healthy = false
			changed(m.GPUs[i].ID, pool.Build(m, options))
		}
		for i := 0; i < len(machine.VFs); i += 1 + len(machine.VFs)/4 {
			m := machine
			m.VFs = slices.Clone(m.VFs)
			m.VFs[i].Fault = "the PF has no carrier"
			later := options
			later.WasSound = map[string]bool{m.VFs[i].ID: true}
			changed(m.VFs[i].ID, pool.Build(m, later))
		}
	})
}

func TestTaints(t *testing.T) {
	t.Parallel()
	machine := load(t, "oci-mi300x-derived", 2)
	machine.GPUs, machine.VFs = slices.Clone(machine.GPUs), slices.Clone(machine.VFs)
	machine.GPUs[0].Healthy = false
	machine.GPUs[1].Held = "pod team/train-0, by the device plugin"
	machine.VFs[1].Fault = "the PF has no carrier"                 // 0000:0c:00.2
	machine.VFs[4].Held = "pod team/serve-0, by the device plugin" // 0000:41:00.1, of no pair therefore
	p := pool.Build(machine, sharing)
	unhealthy := taint("tandem.dev/unhealthy", "gpu-11-00-0")
	held := taint("tandem.dev/device-plugin", "pod-team-train-0-by-the-device-plugin")
	for name, want := range map[string][]resourceapi.DeviceTaint{
		"pair-11-00-0": {unhealthy},
		"gpu-11-00-0":  {unhealthy},
		"vf-0c-00-2":   {taint("tandem.dev/unhealthy", "vf-0c-00-2-the-PF-has-no-carrier")},
		"pair-2f-00-0": {held},
		"gpu-2f-00-0":  {held},
		"pair-46-00-0": nil,
		"vf-2a-00-2":   nil,
		"vf-41-00-1":   {taint("tandem.dev/device-plugin", "pod-team-serve-0-by-the-device-plugin")},
	} {
		if diff := cmp.Diff(want, device(t, p, name).Taints); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}

	without := pool.Build(machine, pool.Options{Counters: true})
	left := published(without)
	for _, name := range []string{"pair-11-00-0", "gpu-11-00-0", "vf-0c-00-2", "pair-2f-00-0", "gpu-2f-00-0",
		"vf-41-00-1"} {
		if slices.Contains(left, name) {
			t.Errorf("%s is published without its taint", name)
		}
	}
	if len(left) != len(published(p))-6 || len(without.Notes) != 1 {
		t.Errorf("%d of %d devices are left; the notes are %q", len(left), len(published(p)), without.Notes)
	}
}

// A degraded pair names the reason and is the last of its slice; only that slice changes.
func TestDegraded(t *testing.T) {
	t.Parallel()
	machine := load(t, "oci-mi300x-derived", 2)
	good := pool.Build(machine, sharing)
	machine.GPUs, machine.VFs = slices.Clone(machine.GPUs), slices.Clone(machine.VFs)
	machine.VFs[0].Degraded = "symbol_error increased by more than 100 in 10s"
	machine.VFs[1].Degraded = machine.VFs[0].Degraded // 0000:0c:00.2, of the same PF
	p := pool.Build(machine, sharing)
	value := device(t, p, "pair-11-00-0").Attributes[pool.AttributeDegraded].StringValue
	if *value != "symbol_error-increased-by-more-than-100-in-10s" {
		t.Errorf("the pair is degraded by %q", *value)
	}
	if _, has := device(t, p, "pair-2f-00-0").Attributes[pool.AttributeDegraded]; has {
		t.Error("a good pair is degraded")
	}
	changed := 0
	for i, s := range p.Slices {
		if !cmp.Equal(s, good.Slices[i]) {
			changed++
		}
		pairs := []string{}
		for _, d := range s.Devices {
			if strings.HasPrefix(d.Name, "pair-") {
				pairs = append(pairs, d.Name)
			}
		}
		if at := slices.Index(pairs, "pair-11-00-0"); at >= 0 && at != len(pairs)-1 {
			t.Errorf("pairs %v", pairs)
		}
	}
	if changed != 1 {
		t.Errorf("%d slices change", changed)
	}
}

func taint(key, value string) resourceapi.DeviceTaint {
	return resourceapi.DeviceTaint{Key: key, Value: value, Effect: resourceapi.DeviceTaintEffectNoSchedule}
}

// A PF that loses its carrier, and with it all of its VFs, leaves each pair its VF.
func TestALostCarrierMovesNoPair(t *testing.T) {
	t.Parallel()
	machine := load(t, "oci-mi300x-derived", 4)
	options := sharing
	options.Bound = map[string]string{"vf-0c-00-3": machine.VFs[0].ID}
	options.InUse = map[string]string{machine.VFs[0].ID: "vf-0c-00-3"}
	before := pool.Build(machine, options)
	machine.VFs, options.WasSound = slices.Clone(machine.VFs), map[string]bool{}
	for i, vf := range machine.VFs {
		options.WasSound[vf.ID] = true
		if vf.Function() == machine.VFs[0].Function() {
			machine.VFs[i].Fault = "the PF has no carrier"
		}
	}
	after := pool.Build(machine, options)
	for name, d := range before.Devices {
		if got := after.Devices[name].VFs; !slices.Equal(got, d.VFs) {
			t.Errorf("%s has %v, not %v", name, got, d.VFs)
		}
	}
}

// While all other VFs of a switch have failed, a GPU is published with one of these, not with a VF that a
// claim has.
func TestNoPairWithAVFOfAClaim(t *testing.T) {
	t.Parallel()
	machine := load(t, "oci-mi300x-derived", 4)
	machine.VFs = slices.Clone(machine.VFs)
	held := machine.VFs[0].ID // the GPU's own, which a claim has through the third VF
	options := sharing
	options.Bound = map[string]string{"vf-0c-00-3": held}
	options.InUse = map[string]string{held: "vf-0c-00-3"}
	options.WasSound = map[string]bool{}
	for i := 1; i < 4; i++ {
		machine.VFs[i].Fault = "the PF has no carrier"
		options.WasSound[machine.VFs[i].ID] = true
	}
	p := pool.Build(machine, options)
	if got := p.Devices["pair-11-00-0"].VFs; slices.Contains(got, held) {
		t.Errorf("the pair has %v of a claim: %v", got, device(t, p, "pair-11-00-0").Taints)
	}
}

// Each GPU is published with a usable VF, if its switch has one. VFs that are unhealthy or held by pods do
// not take the place of usable VFs, nor count among the VFs of a limited number.
func TestPairsHaveUsableVFs(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*pool.VF){
		"unhealthy": func(vf *pool.VF) { vf.Fault = "the RDMA port is not active" },
		"held":      func(vf *pool.VF) { vf.Held = "pod team/old-0, by a device plugin" },
	} {
		for form, options := range forms {
			for _, count := range []int{0, 1, 2} {
				machine := load(t, "oci-mi300x-derived", 4)
				machine.VFs = slices.Clone(machine.VFs)
				for i := range machine.VFs {
					if machine.VFs[i].Index < count {
						spoil(&machine.VFs[i])
					}
				}
				options.VFsPerPF = 2
				p, usable := pool.Build(machine, options), 0
				for _, d := range published(p) {
					of := p.Devices[d].Type
					if (of == pool.TypePair || of == pool.TypeGPUVF) && len(device(t, p, d).Taints) == 0 {
						usable++
					}
				}
				if usable != 8 {
					t.Errorf("%s, %d VFs %s: %d of 8 pairs can be allocated", form, count, name, usable)
				}
			}
		}
	}
}

// Names stay when other devices go, and what claims have is nobody else's.
func TestNamesStay(t *testing.T) {
	t.Parallel()
	everywhere(t, few, func(t *testing.T, machine pool.Machine, options pool.Options) {
		if len(machine.GPUs) == 0 {
			return
		}
		before := pool.Build(machine, options)
		bound := map[string]string{}
		for _, name := range allocate(before, published(before)) {
			if d := before.Devices[name]; len(d.VFs) == 1 {
				bound[name] = d.VFs[0]
			}
		}
		gone := machine.GPUs[0]
		machine.GPUs = machine.GPUs[1:]
		options.Bound = bound
		after := pool.Build(machine, options)
		for name, d := range before.Devices {
			if _, inUse := bound[name]; !inUse || slices.Contains(d.GPUs, gone.ID) {
				continue
			}
			if got := after.Devices[name]; !slices.Equal(got.GPUs, d.GPUs) || !slices.Equal(got.VFs, d.VFs) {
				t.Errorf("%s was %v, and is %v", name, d, got)
			}
		}
	})
}

// A name has one type, whatever the cluster and the machine have: a claim for a pair never gets a GPU alone.
func TestNameTellsType(t *testing.T) {
	t.Parallel()
	for _, name := range machines.Names() {
		full := load(t, name, 4)
		types := map[string]pool.Type{}
		for _, vfs := range []int{0, 1, 2, len(full.VFs)} {
			machine := full
			machine.VFs = full.VFs[:min(vfs, len(full.VFs))]
			for form, options := range forms {
				for device, d := range pool.Build(machine, options).Devices {
					if of := types[device]; of != "" && of != d.Type {
						t.Errorf("%s, %d VFs, %s: %s is %s, and was %s", name, vfs, form, device, d.Type, of)
					}
					types[device] = d.Type
				}
			}
		}
	}
}

// A claim keeps its GPU and VF as one device when the cluster gets counters: the scheduler knows what the
// device consumes.
func TestBothAsOneDeviceStay(t *testing.T) {
	t.Parallel()
	machine, options := load(t, "oci-mi300x-derived", 4), sharing
	before := pool.Build(machine, pool.Options{Taints: true})
	claim(&options, before.Devices["gpu-vf-11-00-0"])
	p := pool.Build(machine, options)
	if len(device(t, p, "gpu-vf-11-00-0").ConsumesCounters) == 0 {
		t.Error("the device of the claim consumes no counter")
	}
	both := []string{"gpu-vf-11-00-0", "pair-11-00-0", "gpu-11-00-0"}
	if got := allocate(p, both); len(got) != 1 {
		t.Errorf("the scheduler can allocate %v", got)
	}
	if got := p.Devices["pair-11-00-0"].VFs; !slices.Equal(got, before.Devices["gpu-vf-11-00-0"].VFs) {
		t.Errorf("the pair has %v", got)
	}
}

// Without counters no claim hides the GPU of another device: the VFs of a switch are spread over its GPUs,
// and a GPU whose VF a claim holds by itself is published alone, as long as a claim holds one of both.
func TestClaimsHideNoOtherGPU(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		bound map[string]string // claims with VFs
		gpu   string            // a claim with the GPU 11 alone
		want  map[string]string // VFs of devices
	}{
		"no claim": {nil, "",
			map[string]string{"gpu-vf-0e-00-0": "0000:0b:00.1", "gpu-vf-11-00-0": "0000:0b:00.2"}},
		"a pair with the VF of another GPU": {map[string]string{"gpu-vf-11-00-0": "0000:0b:00.1"}, "",
			map[string]string{"gpu-vf-0e-00-0": "0000:0b:00.2", "gpu-vf-11-00-0": "0000:0b:00.1"}},
		"a VF": {map[string]string{"vf-0b-00-2": "0000:0b:00.2"}, "",
			map[string]string{"gpu-vf-0e-00-0": "0000:0b:00.1", "gpu-11-00-0": "", "vf-0b-00-2": "0000:0b:00.2"}},
		"a VF and the GPU": {map[string]string{"vf-0b-00-2": "0000:0b:00.2"}, "gpu-11-00-0",
			map[string]string{"gpu-vf-0e-00-0": "0000:0b:00.1", "gpu-11-00-0": "", "vf-0b-00-2": "0000:0b:00.2"}},
		"a GPU alone": {nil, "gpu-11-00-0", map[string]string{"gpu-vf-0e-00-0": "0000:0b:00.1", "gpu-11-00-0": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := pool.Options{Bound: c.bound, InUse: map[string]string{}}
			for name, vf := range c.bound {
				options.InUse[vf] = name
			}
			if c.gpu != "" {
				options.InUse["0000:11:00.0"] = c.gpu
			}
			p := pool.Build(load(t, "amd-mi250-16gcd-8nic", 2), options)
			got := map[string]string{}
			for _, name := range published(p) {
				d := p.Devices[name]
				if slices.ContainsFunc(slices.Concat(d.GPUs, d.VFs), func(id string) bool {
					return strings.HasPrefix(id, "0000:0b") || id == "0000:0e:00.0" || id == "0000:11:00.0"
				}) {
					got[name] = strings.Join(d.VFs, " ")
				}
			}
			if !maps.Equal(got, c.want) {
				t.Errorf("published are %v, want %v", got, c.want)
			}
		})
	}
}

// Of a VF that another one was handed out for Multus is told the other one.
func TestTokens(t *testing.T) {
	t.Parallel()
	machine := load(t, "oci-mi300x-derived", 3)
	options := sharing
	// a pod has the GPU 2f and, in the place of a VF of another switch, its reserved one
	options.Bound = map[string]string{"vf-0c-00-2": "0000:2a:00.1", "gpu-2f-00-0": "0000:2a:00.1"}
	p := pool.Build(machine, options)
	got := values(device(t, p, "vf-0c-00-2"))
	want := map[string]string{
		"k8s.cni.cncf.io/deviceID": "0000:2a:00.1", "vf": "0000:2a:00.1", "pf": "0000:2a:00.0",
		"k8s.cni.cncf.io/resourceName": "tandem.dev/rdma_vf", "pcieSwitch": "0000:08:00.0",
	}
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s is %s, want %s", name, got[name], value)
		}
	}
	if d := p.Devices["vf-0c-00-2"]; !slices.Equal(d.VFs, []string{"0000:0c:00.2"}) {
		t.Errorf("the device stands for %v", d.VFs)
	}
	if d := p.Devices["pair-2f-00-0"]; !slices.Equal(d.VFs, []string{"0000:2a:00.1"}) {
		t.Errorf("the pair of the GPU has %v", d.VFs)
	}
	if got, want := published(p), published(pool.Build(machine, sharing)); !slices.Equal(got, want) {
		t.Errorf("other devices are published: %s", cmp.Diff(want, got))
	}
}

// A claim keeps the VF that it was allocated, also while it has another one: the reserved VF of a GPU can be
// allocated by itself before it is published as reserved again, and a pair with it could never be prepared.
func TestIdleVFOfClaimIsInNoPair(t *testing.T) {
	t.Parallel()
	machine := load(t, "oci-mi300x-derived", 2)
	options := sharing
	options.Bound = map[string]string{"vf-0c-00-1": "0000:2a:00.1", "gpu-2f-00-0": "0000:2a:00.1"}
	options.InUse = map[string]string{
		"0000:0c:00.1": "vf-0c-00-1", "0000:2a:00.1": "vf-0c-00-1", "0000:2f:00.0": "gpu-2f-00-0",
	}
	for _, counters := range []bool{true, false} {
		options.Counters = counters
		p := pool.Build(machine, options)
		name := map[bool]string{true: "pair-11-00-0", false: "gpu-vf-11-00-0"}[counters]
		if d := p.Devices[name]; !slices.Equal(d.VFs, []string{"0000:0c:00.2"}) {
			t.Errorf("counters %t: %s has %v", counters, name, d.VFs)
		}
	}
}
