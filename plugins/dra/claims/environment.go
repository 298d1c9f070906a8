// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/pairs"
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/rdma"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// composition determines the environments of containers in one call, and writes the files of claims.
type composition struct {
	*Preparer
	index        *nodeIndex
	claims       []Claim                 // all prepared claims
	environments map[string]*environment // by group
}

func (p *Preparer) newComposition(index *nodeIndex, claims []Claim) *composition {
	return &composition{p, index, claims, map[string]*environment{}}
}

// addClaim determines the environments of a claim's groups, unless they are known.
func (m *composition) addClaim(c Claim) error {
	for _, first := range c.firstOfGroups() {
		if m.environments[first.Group] != nil {
			continue
		}
		e, err := m.composeGroup(first.Group, inGroup(m.claims, first.Group))
		if err != nil {
			return err
		}
		m.environments[first.Group] = e
	}
	return nil
}

// addClaims adds new claims and kept, already prepared claims, with the present names of their CDI devices.
// It returns the claims to write: all but kept claims that keep their files and names; see keepClaim.
func (m *composition) addClaims(kept, fresh []Claim) (written []Claim, err error) {
	for _, c := range fresh {
		if err := m.addClaim(c); err != nil {
			return nil, fmt.Errorf("prepare %s: %w", c, err)
		}
		c.setCDINames(m.environments)
	}
	written = slices.Clone(fresh)
	for _, c := range kept {
		isComposed, err := m.keepClaim(c)
		if err != nil {
			return nil, err
		}
		if isComposed {
			written = append(written, c)
		}
	}
	return written, nil
}

// keepClaim composes the environments of a prepared claim, with the present names of the CDI devices. It
// returns false for a claim that keeps its files and names because a device cannot be read now. It returns an
// error for a claim with which no container may start: a file is missing, and the kubelet does not call again
// for a claim that it knows as prepared; or a device is gone, and its names and nodes can be another device's
// by now. Then it also empties the CDI spec: without its devices a runtime refuses to start a container,
// which would start without the gone device if the spec had the others. The file says that the claim is
// prepared.
func (m *composition) keepClaim(c Claim) (isComposed bool, err error) {
	if gone := m.findGone(c); gone != "" {
		return false, errors.Join(fmt.Errorf("%s, which is gone: its containers that run continue, and none "+
			"starts before the device is back; or delete the pods of the claim, so that another device is allocated",
			gone), m.saveSpec(c, nil))
	}
	if err := m.addClaim(c); err != nil {
		return false, m.reportUnrestored(c, err)
	}
	c.setCDINames(m.environments)
	return true, nil
}

// listKept returns the prepared claims with which containers may start. It writes no file.
func (m *composition) listKept(claims []Claim) []Claim {
	return slices.DeleteFunc(slices.Clone(claims), func(c Claim) bool {
		_, err := m.keepClaim(c)
		return err != nil || m.findMissing(c) != ""
	})
}

// findGone returns a text about the first device of a claim's containers that the node no longer has, "" for
// none.
func (m *composition) findGone(c Claim) string {
	for _, first := range c.firstOfGroups() {
		for _, other := range m.claims {
			what := m.findGoneIn(inGroup([]Claim{other}, first.Group))
			switch {
			case what == "":
			case other.UID == c.UID:
				return fmt.Sprintf("%s has %s", c, what)
			default:
				return fmt.Sprintf("%s is used with %s, and that has %s", c, other, what)
			}
		}
	}
	return ""
}

// findGoneIn names the first of some devices, with its GPU or VF that the node no longer has; "" for none.
func (m *composition) findGoneIn(devices []Prepared) string {
	for _, p := range devices {
		for _, id := range p.GPUs {
			if m.lacksGPU(p, id) {
				return fmt.Sprintf("device %s with GPU %s", p.Device, id)
			}
		}
		for _, id := range p.VFs {
			if pools.IsGone(m.Host.Sys, coordination.ClaimUnitOf(id, p.Units)) {
				return fmt.Sprintf("device %s with VF %s", p.Device, id)
			}
		}
	}
	return ""
}

// lacksGPU reports whether the node no longer has a GPU of a device. A GPU of a card that was partitioned
// anew is another GPU.
func (m *composition) lacksGPU(p Prepared, id string) bool {
	machine := m.index.state.Machine
	g, known := m.index.gpus[id]
	isAnother := known && !machine.Unread[g.Card] && p.isPartitionedAnew(g.Parts)
	return isAnother || machine.LacksGPU(coordination.ClaimUnitOf(id, p.Units))
}

// isPartitionedAnew reports whether a card with a number of partitions has not those of the device. Of two
// ways to partition a card one has at least twice the partitions of the other; one partition can be missing.
func (p Prepared) isPartitionedAnew(parts int) bool {
	return p.Parts > 0 && max(parts, p.Parts) >= 2*min(parts, p.Parts)
}

// restoreClaim writes missing and outdated files of a prepared claim, unless keepClaim leaves or removes
// them.
func (m *composition) restoreClaim(c Claim) error {
	isComposed, err := m.keepClaim(c)
	if err != nil || !isComposed {
		return err
	}
	if err := m.writeClaim(c); err != nil {
		return m.reportUnrestored(c, err)
	}
	m.forgetUnrestored(c)
	return nil
}

// composeGroup determines the environment of containers with the given devices.
func (m *composition) composeGroup(group string, devices []Prepared) (*environment, error) {
	choice, err := m.index.orderDevices(devices)
	if err != nil {
		return nil, err
	}
	e := &environment{file: m.pairsPath(group)}
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
	var tellers []*rdma.Pairs // of resources that request the description of pairs
	for _, name := range slices.Sorted(maps.Keys(byPool)) {
		told, err := m.addVFs(e, name, byPool[name])
		if err != nil {
			return nil, err
		}
		if told != nil {
			tellers = append(tellers, told)
		}
	}
	return e, m.addPairs(e, tellers, choice)
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
		if !ok || m.GPUs == nil {
			return fmt.Errorf("find GPU %s: it is gone", chosen.ID)
		}
		all = append(all, g.Device)
		byResource[g.Resource] = append(byResource[g.Resource], g.Device)
	}
	for _, resource := range slices.Sorted(maps.Keys(byResource)) {
		if err := m.GPUs.Refuse(resource, byResource[resource], nil); err != nil {
			return err
		}
	}
	e.edits.Add(m.GPUs.Edits(all))
	return nil
}

// addVFs adds the edits for the VFs of one resource. It returns the resource's description of pairs, nil for
// none.
func (m *composition) addVFs(e *environment, name string, ids []string) (*rdma.Pairs, error) {
	pool, ok := m.index.state.Machine.Pool(name)
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
	told := m.Host.Pairs(pool, order)
	order = slices.Concat(order, pool.Beside(order))
	given := make(map[string]*rdma.Grant, len(order))
	for _, id := range order {
		d, _ := pool.Device(id)
		if d.Gone(m.Host.Sys) {
			return nil, fmt.Errorf("find VF %s of %s: it is gone", id, name)
		}
		given[id] = m.Host.Grant(d, pool.Resource)
		e.infos = append(e.infos, info{pool, d, given[id]})
	}
	e.edits.Add(m.Host.Edits(pool, order, given))
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

// addPairs adds the description of pairs that resources request.
func (m *composition) addPairs(e *environment, tellers []*rdma.Pairs, choice placement.Choice) error {
	var named []pairs.VF
	for _, t := range tellers {
		named = append(named, t.VFs...)
	}
	if len(named) == 0 {
		return nil
	}
	told := pairs.Compose(m.index.state.Machine.Tree, m.index.devicesOf(choice), named)
	for _, t := range tellers {
		if t.File != "" {
			e.told, t.File = &told, e.file
		}
		if err := t.Mount(true, &e.edits); err != nil {
			return err
		}
		t.Tell(servedGPUs(told), &e.edits)
	}
	return nil
}

// servedGPUs returns the VF that serves each GPU.
func servedGPUs(told pairs.File) []pairs.Served {
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

// writeClaim writes the files of a claim, first the files that its CDI spec refers to.
func (m *composition) writeClaim(c Claim) error {
	for _, first := range c.firstOfGroups() {
		if err := m.environments[first.Group].writeFiles(m.Host); err != nil {
			return err
		}
	}
	return m.writeSpec(c, m.environments)
}

// deviceData is the driver's own data about a device in a claim's status. The API server accepts 10 KiB.
type deviceData struct {
	GPU  string   `json:"gpu,omitempty"` // of a bundle the list below instead
	VF   string   `json:"vf,omitempty"`
	PF   string   `json:"pf,omitempty"`
	RDMA string   `json:"rdmaDevice,omitempty"`
	GPUs []string `json:"gpus,omitempty"`
	VFs  []string `json:"vfs,omitempty"`
	// the netdev that represents the VF on the node, if the PF is in switchdev mode
	Representor string `json:"representor,omitempty"`
	// the VF that the device names, if another VF is assigned
	Token string `json:"token,omitempty"`
}

// Status returns the entries of a claim's status for its devices: the assigned GPUs and VFs, with their names
// on the node. Must be called when the claim is prepared, because CNI plugins remove the netdevs afterwards.
func (p *Preparer) Status(state State, claim Claim, now metav1.Time) []resourceapi.AllocatedDeviceStatus {
	vfs := newNodeIndex(state).vfs
	linked := readRepresentors(p.Host.Functions(), claim, vfs)
	statuses := make([]resourceapi.AllocatedDeviceStatus, 0, len(claim.Devices))
	for _, d := range claim.Devices {
		statuses = append(statuses, resourceapi.AllocatedDeviceStatus{
			Driver: pool.Driver, Pool: d.Pool, Device: d.Device,
			Conditions: []metav1.Condition{{
				Type: "Ready", Status: metav1.ConditionTrue, Reason: "Prepared", LastTransitionTime: now,
				Message: "prepared on its node",
			}},
			Data:        &runtime.RawExtension{Raw: encodeDevice(d, vfs, linked)},
			NetworkData: readNetdev(p.Host, d, vfs),
		})
	}
	return statuses
}

func encodeDevice(d Prepared, vfs map[string]pool.VF, representors map[string]string) []byte {
	data := deviceData{Token: d.Token}
	if len(d.GPUs) > 1 || len(d.VFs) > 1 {
		data.GPUs, data.VFs = d.GPUs, d.VFs
	} else {
		data.GPU, data.VF = firstOrEmpty(d.GPUs), firstOrEmpty(d.VFs)
		if vf, ok := vfs[data.VF]; ok {
			data.RDMA = vf.RDMA
			data.PF = vf.Function().String()
			data.Representor = representors[vf.Address.String()]
		}
	}
	raw, err := json.Marshal(data)
	if err != nil {
		return nil // strings can be encoded
	}
	return raw
}

// readRepresentors returns the names under which a switch in the kernel, such as Open vSwitch, knows VFs of a
// claim, by address; only for PFs in switchdev mode. It reads each PF once.
func readRepresentors(functions pools.SRIOV, claim Claim, vfs map[string]pool.VF) map[string]string {
	all := map[string]string{}
	seen := map[topology.Address]bool{}
	for _, d := range claim.Devices {
		pf := vfs[firstOrEmpty(d.VFs)].PF
		if pf != (topology.Address{}) && !seen[pf] {
			seen[pf] = true
			maps.Copy(all, functions.Representors(pf))
		}
	}
	return all
}

// readNetdev returns the netdev of a device with one VF, nil without a netdev, for example with vfio-pci.
func readNetdev(host rdma.Host, d Prepared, vfs map[string]pool.VF) *resourceapi.NetworkDeviceData {
	vf, ok := vfs[firstOrEmpty(d.VFs)]
	if !ok || len(d.VFs) != 1 {
		return nil
	}
	names := host.Functions().Netdevs(vf.Address, vf.Aux)
	if len(names) == 0 {
		return nil
	}
	name := slices.Min(names)
	return &resourceapi.NetworkDeviceData{
		InterfaceName: name,
		HardwareAddress: pools.ReadText(host.Sys,
			pools.NetdevFile(host.Sys, vf.Address, vf.Aux, name, "address")),
	}
}

func firstOrEmpty(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}
