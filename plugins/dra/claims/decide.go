// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/pairs"
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// decision determines the devices of claims, one claim after another. It does no I/O.
type decision struct {
	*nodeIndex
	groups groups
	named  map[string]bool // VFs that devices of the call name, by ID
}

func newDecision(state State, prepared []Claim, groups groups) *decision {
	d := &decision{newNodeIndex(state), groups, map[string]bool{}}
	for _, c := range prepared {
		d.holdDevices(c)
	}
	return d
}

// decideAll determines the devices of claims.
func (d *decision) decideAll(due []*resourceapi.ResourceClaim) (fresh []Claim, err error) {
	for _, claim := range due {
		for _, result := range driverResults(claim) {
			device, _ := d.state.findDevice(claim, result)
			for _, id := range device.VFs {
				d.named[id] = true
			}
		}
	}
	for _, claim := range due {
		c, err := d.decideClaim(claim)
		if err != nil {
			return nil, err
		}
		fresh = append(fresh, c)
	}
	return fresh, nil
}

// decideClaim determines the devices of a claim, or returns an error in one sentence.
func (d *decision) decideClaim(claim *resourceapi.ResourceClaim) (Claim, error) {
	decided := NewClaim(claim)
	required, err := demandOf(claim)
	if err != nil {
		return Claim{}, err
	}
	decided.Required = required
	for _, result := range driverResults(claim) {
		device, ok := d.state.findDevice(claim, result)
		if !ok {
			return Claim{}, fmt.Errorf("%s was allocated device %s, and the node has no such device any more: "+
				"delete the pod, so that another one is allocated", decided, result.Device)
		}
		p := Prepared{
			Request: result.Request, Pool: result.Pool, Device: result.Device,
			GPUs: slices.Clone(device.GPUs), VFs: removeDuplicates(device.VFs),
			Admin: result.AdminAccess != nil && *result.AdminAccess,
		}
		p.Group = d.groups.nameGroup(claim.UID, p.requestName())
		decided.Devices = append(decided.Devices, p)
	}
	d.replaceVFs(decided.Devices)
	d.redeemTokens(decided.Devices)
	for i := range decided.Devices {
		d.recordUnits(&decided.Devices[i])
		d.recordParts(&decided.Devices[i])
	}
	if err := d.checkDevices(decided); err != nil {
		return Claim{}, err
	}
	d.holdDevices(decided)
	return decided, nil
}

// replaceVFs assigns other VFs of the switch in place of VFs that other claims have, or other devices of the
// claim. The scheduler can allocate one VF to two claims: alone, and in a pair that is published with it
// before the driver knows of the first claim. A GPU, a VF of a bundle, and a VF whose switch has no free one
// cannot be replaced: the later claim is refused until the other one ends. So is a claim of a device of the
// same name, which is published with one VF.
func (d *decision) replaceVFs(devices []Prepared) {
	for i := range devices {
		p := &devices[i]
		if p.Admin || d.given[p.Device] || len(p.VFs) != 1 || len(p.GPUs) > 1 {
			continue
		}
		own := d.vfs[p.VFs[0]]
		hasOwn := func(q Prepared) bool { return !q.Admin && slices.Contains(q.VFs, own.ID) }
		if d.held.Of(own.ID, d.units[own.ID]) == "" && !slices.ContainsFunc(devices[:i], hasOwn) {
			continue
		}
		from := own.Address
		if len(p.GPUs) == 1 {
			from = d.gpus[p.GPUs[0]].Card
		}
		distance := func(vf pool.VF) topology.Distance { return d.state.Machine.Tree.Distance(from, vf.Address) }
		fit := slices.DeleteFunc(slices.Clone(d.state.Machine.VFs), func(vf pool.VF) bool {
			isLike := vf.Pool == own.Pool && (vf.RDMA == "") == (own.RDMA == "") && distance(vf).Level.Direct()
			return !isLike || d.named[vf.ID] || !d.isAvailable(vf.ID)
		})
		if len(fit) > 0 {
			nearest := slices.MinFunc(fit, func(v, w pool.VF) int { return distance(v).Compare(distance(w)) })
			p.VFs, d.named[nearest.ID] = []string{nearest.ID}, true
		}
	}
}

// checkDevices is a final validation: no claim gets a device that does not exist or is not usable. The idle
// VF of a token can be unhealthy.
func (d *decision) checkDevices(c Claim) error {
	for _, p := range c.Devices {
		for _, id := range p.GPUs {
			if err := d.checkFree(c, p, "GPU", id, d.gpus[id].Unusable()); err != nil {
				return err
			}
		}
		for _, id := range p.allVFs() {
			vf := d.vfs[id]
			if id == p.Token {
				vf.Fault = ""
			}
			if err := d.checkFree(c, p, "VF", id, vf.Unusable()); err != nil {
				return err
			}
		}
	}
	return d.checkTwice(c)
}

// checkTwice returns an error if two devices of a claim have the same GPU or VF: a device of a name can have
// another VF than at the allocation, after the node's VFs have changed.
func (d *decision) checkTwice(c Claim) error {
	first := map[topology.Unit]string{}
	for _, p := range c.Devices {
		for _, id := range slices.Concat(p.GPUs, p.VFs) {
			unit := d.units[id]
			other, twice := first[unit]
			switch {
			case p.Admin || unit.Shared:
			case twice:
				return fmt.Errorf("%s was allocated devices %s and %s, and both have %s now: delete the pod, so that "+
					"other devices are allocated", c, other, p.Device, unit.Name)
			default:
				first[unit] = p.Device
			}
		}
	}
	return nil
}

// checkFree returns an error if a claim cannot have a GPU or VF of a device: because of its holder by a
// claim, or for the reason why no claim can get it.
func (d *decision) checkFree(c Claim, p Prepared, kind, id, unusable string) error {
	unit, known := d.units[id]
	what, holder := kind+" "+id, d.held.Of(id, unit)
	switch {
	case !known:
		return fmt.Errorf("%s was allocated device %s, and its %s is gone: delete the pod, so that another device "+
			"is allocated", c, p.Device, what)
	case p.Admin:
		return nil
	case holder != "":
		return fmt.Errorf("%s was allocated device %s, and its %s is in use by %s: it is handed out once that "+
			"claim ends; or delete the pod, so that another device is allocated", c, p.Device, what, holder)
	case unusable != "":
		return fmt.Errorf("%s was allocated device %s, and its %s: it is handed out once that ends; or delete the "+
			"pod, so that another device is allocated", c, p.Device, unusable)
	default:
		return nil
	}
}

// asksForGPU reports whether a request of a claim is only for GPUs: its class is one of Tandem's classes
// without VFs, "gpu.tandem.dev" or the class of a GPU resource name. With any other class the request also
// gets the VF.
func asksForGPU(claim *resourceapi.ResourceClaim, request string) bool {
	alone := func(class string) bool {
		return strings.HasSuffix(class, "."+pool.Driver) && class != "pair."+pool.Driver
	}
	for _, r := range claim.Spec.Devices.Requests {
		if r.Exactly != nil && r.Name == request {
			return alone(r.Exactly.DeviceClassName)
		}
		for _, sub := range r.FirstAvailable {
			if r.Name+"/"+sub.Name == request {
				return alone(sub.DeviceClassName)
			}
		}
	}
	return false
}

// removeDuplicates removes duplicates.
func removeDuplicates(list []string) []string {
	var once []string
	for _, s := range list {
		if !slices.Contains(once, s) {
			once = append(once, s)
		}
	}
	return once
}

// nodeIndex finds the devices of a node and their holders.
type nodeIndex struct {
	state State
	gpus  map[string]pool.GPU       // by ID
	vfs   map[string]pool.VF        // by ID
	units map[string]topology.Unit  // of GPUs and VFs, by ID
	ids   map[string]string         // of GPUs and VFs, by name of the unit
	held  coordination.ClaimHolders // other claims, including new claims
	given map[string]bool           // devices of these claims, by name
}

func newNodeIndex(state State) *nodeIndex {
	n := &nodeIndex{
		state: state, held: coordination.ClaimHolders{}, given: map[string]bool{},
		gpus: make(map[string]pool.GPU, len(state.Machine.GPUs)),
		vfs:  make(map[string]pool.VF, len(state.Machine.VFs)), units: map[string]topology.Unit{},
		ids: map[string]string{},
	}
	for _, g := range state.Machine.GPUs {
		n.gpus[g.ID], n.units[g.ID], n.ids[g.Unit().Name] = g, g.Unit(), g.ID
	}
	for _, vf := range state.Machine.VFs {
		n.vfs[vf.ID], n.units[vf.ID], n.ids[vf.Unit().Name] = vf, vf.Unit(), vf.ID
	}
	return n
}

// holdDevices records the devices of a claim.
func (n *nodeIndex) holdDevices(c Claim) {
	for _, p := range c.Devices {
		n.given[p.Device] = n.given[p.Device] || !p.Admin
		for _, id := range p.Holds() {
			n.held[coordination.ClaimUnitOf(id, p.Units)] = c.String()
		}
	}
}

// recordParts records the partitions of the card of a claim's device.
func (n *nodeIndex) recordParts(p *Prepared) {
	for _, id := range p.GPUs {
		if g := n.gpus[id]; g.Vendor == gpu.AMD {
			p.Parts = g.Parts
		}
	}
}

// recordUnits records the units of a claim's device.
func (n *nodeIndex) recordUnits(p *Prepared) {
	for _, id := range slices.Concat(p.GPUs, p.allVFs()) {
		unit, known := n.units[id]
		if known {
			p.recordUnit(id, unit.Name)
		}
	}
}

// isAvailable reports whether a VF can be handed out.
func (n *nodeIndex) isAvailable(id string) bool {
	vf, ok := n.vfs[id]
	return ok && vf.Unusable() == "" && n.held.Of(id, n.units[id]) == ""
}

// nearAny reports whether a VF is on one switch with any of some GPUs.
func (n *nodeIndex) nearAny(gpus []*Prepared, vf string) bool {
	return slices.ContainsFunc(gpus, func(gpu *Prepared) bool { return n.sameSwitch(gpu.GPUs[0], vf) })
}

func (n *nodeIndex) sameSwitch(gpu, vf string) bool {
	g, known := n.gpus[gpu]
	v, too := n.vfs[vf]
	return known && too && n.state.Machine.Tree.Distance(g.Card, v.Address).Level.Direct()
}

// orderDevices returns the devices of containers with the same devices, each once, as halves for placement:
// with admin access a claim can have a GPU alone, in a pair and in a bundle.
func (n *nodeIndex) orderDevices(devices []Prepared) (placement.Choice, error) {
	var gpus, vfs placement.Half
	var gpuIDs, vfIDs []string
	for _, p := range devices {
		gpuIDs, vfIDs = append(gpuIDs, p.GPUs...), append(vfIDs, p.VFs...)
	}
	for _, id := range removeDuplicates(gpuIDs) {
		gpus.Held = append(gpus.Held, placement.Device{ID: id, Address: n.gpus[id].Card})
	}
	for _, id := range removeDuplicates(vfIDs) {
		vfs.Held = append(vfs.Held, placement.Device{ID: id, Address: n.vfs[id].Address})
	}
	gpus.Count, vfs.Count = len(gpus.Held), len(vfs.Held)
	choice, err := placement.Choose(n.state.Machine.Tree, placement.Request{
		GPUs: []placement.Half{gpus}, VFs: []placement.Half{vfs}, Links: n.state.Machine.Links,
	})
	if err != nil {
		return choice, fmt.Errorf("order the devices of a container: %w", err)
	}
	return choice, nil
}

// devicesOf returns the devices of a choice, with their resources.
func (n *nodeIndex) devicesOf(choice placement.Choice) []pairs.Device {
	var all []pairs.Device
	for _, chosen := range choice.GPUs {
		all = append(all, pairs.Device{
			Device:   device.Device{ID: chosen.ID, Address: chosen.Address},
			Resource: n.gpus[chosen.ID].Resource, Kind: device.GPU,
		})
	}
	for _, chosen := range choice.VFs {
		all = append(all, pairs.Device{
			Device:   device.Device{ID: chosen.ID, Address: chosen.Address},
			Resource: n.vfs[chosen.ID].Pool, Kind: device.VF,
		})
	}
	return all
}
