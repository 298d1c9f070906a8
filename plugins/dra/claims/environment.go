// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"fmt"
	"maps"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/pairs"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/rdma/grants"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// composition determines the environments of containers in one call, and writes the files of claims.
type composition struct {
	host   grants.Host
	gpus   GPUs
	vfs    VFs
	files  *claimFiles
	index  *nodeIndex
	claims []Claim // all prepared claims

	environments map[string]*environment // by group
}

// add determines the environments of a claim's groups, unless they are known.
func (m *composition) add(c Claim) error {
	for _, first := range c.firsts() {
		if m.environments[first.Group] != nil {
			continue
		}
		e, err := m.compose(first.Group, inGroup(m.claims, first.Group))
		if err != nil {
			return err
		}
		m.environments[first.Group] = e
	}
	return nil
}

// addAll adds new claims and kept, already prepared claims. It returns the claims to write: all but kept
// claims with devices that are gone, which keep their files. It returns an error if a file of such a claim is
// missing: the kubelet does not call again for a claim that it knows as prepared.
func (m *composition) addAll(kept, fresh []Claim) (written []Claim, err error) {
	for _, c := range fresh {
		if err := m.add(c); err != nil {
			return nil, fmt.Errorf("prepare %s: %w", c, err)
		}
		c.names(m.environments)
	}
	written = slices.Clone(fresh)
	for _, c := range kept {
		err := m.add(c)
		if err == nil {
			written = append(written, c)
		} else if err = m.files.unrestored(c, err); err != nil {
			return nil, err
		}
	}
	return written, nil
}

// restore writes missing and outdated files of a prepared claim. If a device is gone the files stay as they
// are. It returns an error if a file is missing that the answer to the kubelet refers to.
func (m *composition) restore(c Claim) error {
	err := m.add(c)
	if err == nil {
		err = m.write(c)
	}
	if err != nil {
		return m.files.unrestored(c, err)
	}
	m.files.restored(c)
	return nil
}

// compose determines the environment of containers with the given devices.
func (m *composition) compose(group string, devices []Prepared) (*environment, error) {
	choice, err := m.index.lists(devices)
	if err != nil {
		return nil, err
	}
	e := &environment{file: m.files.pairsPath(group)}
	if err := m.addGPUs(e, choice.GPUs); err != nil {
		return nil, err
	}
	byPool := map[string][]string{}
	for _, chosen := range choice.VFs {
		vf, ok := m.index.vfs[chosen.ID]
		if !ok {
			return nil, fmt.Errorf("find VF %s: it is gone", chosen.ID)
		}
		byPool[vf.Pool] = append(byPool[vf.Pool], chosen.ID)
	}
	var tellers []*grants.Pairs // of resources that request the description of pairs
	for _, name := range slices.Sorted(maps.Keys(byPool)) {
		told, err := m.addVFs(e, name, byPool[name])
		if err != nil {
			return nil, err
		}
		if told != nil {
			tellers = append(tellers, told)
		}
	}
	return e, m.tell(e, tellers, choice)
}

// addGPUs adds the edits for GPUs of all resources together, because their list in the container is one.
func (m *composition) addGPUs(e *environment, ordered []placement.Device) error {
	if len(ordered) == 0 {
		return nil
	}
	var all []gpu.Device
	byResource := map[string][]gpu.Device{}
	for _, chosen := range ordered {
		g, ok := m.index.gpus[chosen.ID]
		if !ok || m.gpus == nil {
			return fmt.Errorf("find GPU %s: it is gone", chosen.ID)
		}
		all = append(all, g.Device)
		byResource[g.Resource] = append(byResource[g.Resource], g.Device)
	}
	for _, resource := range slices.Sorted(maps.Keys(byResource)) {
		if err := m.gpus.Refuse(resource, byResource[resource], nil); err != nil {
			return err
		}
	}
	e.edits.Add(m.gpus.Edits(all))
	return nil
}

// addVFs adds the edits for the VFs of one resource. It returns the resource's description of pairs, nil for
// none.
func (m *composition) addVFs(e *environment, name string, ids []string) (*grants.Pairs, error) {
	if m.vfs == nil {
		return nil, fmt.Errorf("find resource %s: there are no VFs on this node", name)
	}
	pool, ok := m.vfs.Pool(name)
	if !ok {
		return nil, fmt.Errorf("find resource %s: the configuration does not have it any more", name)
	}
	order := make([]string, 0, len(ids))
	for _, id := range ids {
		own, ok := idIn(pool, id)
		if !ok {
			return nil, fmt.Errorf("find VF %s of %s: it is gone", id, name)
		}
		order = append(order, own)
	}
	told := m.host.Pairs(pool, order)
	order = slices.Concat(order, pool.Beside(order))
	given := make(map[string]*grants.Grant, len(order))
	for _, id := range order {
		d, _ := pool.Device(id)
		if d.Gone(m.host.Sys) {
			return nil, fmt.Errorf("find VF %s of %s: it is gone", id, name)
		}
		given[id] = m.host.Grant(d, pool.Resource)
		e.infos = append(e.infos, info{pool, d, given[id]})
	}
	edits, err := m.host.Edits(pool, order, given)
	if err != nil {
		return nil, err
	}
	e.edits.Add(edits)
	if told != nil {
		for i := range told.VFs {
			told.VFs[i].ID = ids[i]
		}
	}
	return told, nil
}

// idIn returns the ID of a VF in a pool; for a shared HCA, the ID of a replica.
func idIn(pool pools.Pool, id string) (string, bool) {
	i := slices.IndexFunc(pool.Devices, func(d pools.Device) bool {
		original, _ := topology.CutReplica(d.ID)
		return original == id
	})
	if i < 0 {
		return "", false
	}
	return pool.Devices[i].ID, true
}

// tell adds the description of pairs that resources request.
func (m *composition) tell(e *environment, tellers []*grants.Pairs, choice placement.Choice) error {
	var named []pairs.VF
	for _, t := range tellers {
		named = append(named, t.VFs...)
	}
	if len(named) == 0 {
		return nil
	}
	told := pairs.Compose(m.index.state.Machine.Tree, m.index.devices(choice), named)
	for _, t := range tellers {
		if t.File != "" {
			e.told, t.File = &told, e.file
		}
		if err := t.Mount(true, &e.edits); err != nil {
			return err
		}
		t.Tell(served(told), &e.edits)
	}
	return nil
}

// served returns the VF that serves each GPU.
func served(told pairs.File) []pairs.Served {
	var list []pairs.Served
	for _, pair := range told.Pairs {
		if pair.GPU == nil {
			continue
		}
		known := func(s pairs.Served) bool { return s.GPU == pair.GPU.Address }
		if !slices.ContainsFunc(list, known) {
			list = append(list, pairs.Served{GPU: pair.GPU.Address, VF: pair.VF.ID})
		}
	}
	return list
}

// write writes the files of a claim, first the files that its CDI spec refers to.
func (m *composition) write(c Claim) error {
	for _, first := range c.firsts() {
		if err := m.environments[first.Group].write(m.host); err != nil {
			return err
		}
	}
	return m.files.writeSpec(c, m.environments)
}
