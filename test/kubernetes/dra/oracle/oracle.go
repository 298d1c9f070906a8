// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/test/kubernetes/dra/claim"
)

// Oracle is a machine with the devices of claims.
type Oracle struct {
	machine pool.Machine
	devices map[string]pool.Device
	groups  []*group
	// the same without reserved VFs, with all pairs
	unreserved []*group
	of         map[string]*group   // by ID of a GPU or VF
	holder     map[string]string   // by ID: the claim that holds it
	claims     map[string][]string // by claim: the IDs that it holds
}

// New checks that the published devices of a free machine follow the rules and are complete.
func New(m pool.Machine, options pool.Options, p pool.Pool) (*Oracle, error) {
	published := map[string]bool{}
	for _, d := range p.Devices {
		for _, vf := range d.VFs {
			published[vf] = true
		}
	}
	if err := capped(m, options.VFsPerPF, published); err != nil {
		return nil, err
	}
	list, err := groups(m, published)
	if err != nil {
		return nil, err
	}
	o := &Oracle{
		machine: m, devices: p.Devices, groups: list,
		of: map[string]*group{}, holder: map[string]string{}, claims: map[string][]string{},
	}
	for _, g := range list {
		for _, id := range slices.Concat(g.gpus, g.vfs) {
			o.of[id] = g
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.Devices)) {
		if err := o.together(p.Devices[name]); err != nil {
			return nil, err
		}
	}
	for _, g := range list {
		if err := g.assign(p.Devices, options.Counters, few(list)); err != nil {
			return nil, err
		}
		o.unreserved = append(o.unreserved, g.unreserved())
	}
	return o, nil
}

// capped checks that the maximum number of VFs of each PF is published, or all VFs.
func capped(m pool.Machine, most int, published map[string]bool) error {
	there, here := map[string]int{}, map[string]int{}
	for _, vf := range m.VFs {
		pf := vf.PF.String()
		there[pf]++
		if published[vf.ID] {
			here[pf]++
		}
	}
	for pf, count := range there {
		want := count
		if most > 0 && vfOf(pf) {
			want = min(count, most)
		}
		if here[pf] != want {
			return fmt.Errorf("PF %s: %d of %d VFs are published, want %d", pf, here[pf], count, want)
		}
	}
	return nil
}

// vfOf reports whether pf is a PF's address, not the zero address.
func vfOf(pf string) bool { return pf != "0000:00:00.0" }

// together checks that the parts of a device are on one switch.
func (o *Oracle) together(d pool.Device) error {
	if d.Type == pool.TypeGPU && len(d.VFs) > 0 || d.Type == pool.TypeVF && len(d.GPUs) > 0 {
		return fmt.Errorf("%s is a %s and has %v and %v", d.Name, d.Type, d.GPUs, d.VFs)
	}
	ids := slices.Concat(d.GPUs, d.VFs)
	for _, id := range ids {
		if o.of[id] == nil || o.of[id] != o.of[ids[0]] {
			return fmt.Errorf("%s has %s, which is not on the switch of %s", d.Name, id, ids[0])
		}
	}
	if (d.Type == pool.TypePair || d.Type == pool.TypeGPUVF) && (len(d.GPUs) != 1 || len(d.VFs) != 1) {
		return fmt.Errorf("%s is a %s of %d GPUs and %d VFs", d.Name, d.Type, len(d.GPUs), len(d.VFs))
	}
	return nil
}

// Take assigns the allocator's results to a claim. It returns an error if they break a rule.
func (o *Oracle) Take(name string, s claim.Spec, results []resourceapi.DeviceRequestAllocationResult) error {
	given, err := o.given(results)
	if err != nil {
		return err
	}
	got := counts{len(given["pairs"]), len(given["gpus"]), len(given["vfs"]), len(given["bundles"])}
	if want := (counts{s.Pairs, s.GPUs, s.VFs, s.Bundles}); got != want {
		return fmt.Errorf("%v: got %v pairs, GPUs, VFs, bundles", s, got)
	}
	if err := o.constrained(s, given["pairs"], near(results)); err != nil {
		return err
	}
	for _, list := range given {
		for _, d := range list {
			for _, id := range slices.Concat(d.GPUs, d.VFs) {
				if other := o.holder[id]; other != "" {
					return fmt.Errorf("%s has %s, which %s has already", d.Name, id, other)
				}
				o.holder[id] = name
				o.claims[name] = append(o.claims[name], id)
			}
		}
	}
	return nil
}

// Release releases the devices of a claim.
func (o *Oracle) Release(name string) {
	for _, id := range o.claims[name] {
		delete(o.holder, id)
	}
	delete(o.claims, name)
}

// fits has the allowed types of devices by request.
var fits = map[string][]pool.Type{
	"pairs": {pool.TypePair, pool.TypeGPUVF}, "gpus": {pool.TypeGPU, pool.TypeGPUVF},
	"vfs": {pool.TypeVF}, "bundles": {pool.TypeBundle},
}

// given returns the devices by request.
func (o *Oracle) given(
	results []resourceapi.DeviceRequestAllocationResult,
) (map[string][]pool.Device, error) {
	given := map[string][]pool.Device{}
	for _, r := range results {
		request, _, _ := strings.Cut(r.Request, "/")
		d, known := o.devices[r.Device]
		switch {
		case r.Driver != pool.Driver || !known:
			return nil, fmt.Errorf("%s/%s is not published", r.Driver, r.Device)
		case !slices.Contains(fits[request], d.Type):
			return nil, fmt.Errorf("%s is a %s, given for %s", r.Device, d.Type, r.Request)
		}
		given[request] = append(given[request], d)
	}
	return given, nil
}

// near reports whether the first alternative was taken.
func near(results []resourceapi.DeviceRequestAllocationResult) bool {
	return slices.ContainsFunc(results, func(r resourceapi.DeviceRequestAllocationResult) bool {
		return r.Request == "pairs/near"
	})
}

// constrained checks pairs against the claim's constraints.
func (o *Oracle) constrained(s claim.Spec, pairs []pool.Device, near bool) error {
	if s.Near && near {
		s.Same = claim.NUMANode
	}
	if s.Near && !near {
		first := s
		first.Near, first.Same = false, claim.NUMANode
		if o.Exists(first) {
			return fmt.Errorf("%v: there are enough on one NUMA node", s)
		}
	}
	values, switches := map[string]bool{}, map[*group]bool{}
	for _, d := range pairs {
		g := o.of[d.GPUs[0]]
		switches[g] = true
		value, known := g.value(s)
		if !known {
			return fmt.Errorf("%v: %s has no %s", s, d.Name, s.Same)
		}
		values[value] = true
	}
	if s.Same != "" && len(values) > 1 {
		return fmt.Errorf("%v: pairs of %d", s, len(values))
	}
	if s.Distinct && len(switches) < len(pairs) {
		return fmt.Errorf("%v: %d pairs on %d switches", s, len(pairs), len(switches))
	}
	return nil
}
