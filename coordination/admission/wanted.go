package admission

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/coordination/asking"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
	"github.com/tandem-k8s/tandem/coordination/resources"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// wanted is what a container wants of one resource, and what it can have of it.
type wanted struct {
	resource *resources.Resource
	half     placement.Half
}

// wantedBy lists what the asking container wants of every resource. Of the one that is asked for the kubelet
// says what can be had; of the others it is what is free on the NUMA nodes that it will offer. What the
// container has already, or takes over from an init container, is held; where that is more than it wants the
// kubelet takes any of it.
func (d *deciding) wantedBy(
	c *asking.Container, r *resources.Resource, usable offer, q asking.Question,
) []wanted {
	var all []wanted
	nodes, admitted := d.nodesOf(q, func() (hints.Mask, bool) { return d.predict(c) })
	for _, name := range slices.Sorted(maps.Keys(c.Asker.Requests)) {
		other := d.resources[name]
		switch other {
		case nil: // another plugin's
		case r:
			all = append(all, wanted{r, offeredHalf(r, usable, q.Size)})
		default:
			half := placement.Half{Count: c.Asker.Requests[name], Held: heldBy(c, other)}
			if len(half.Held) > half.Count {
				half.Held, half.Free = nil, half.Held
			} else if admitted {
				half.Free = d.books().freeOn(other, nodes)
			}
			half.Count = min(half.Count, len(half.Held)+len(half.Free))
			all = append(all, wanted{other, half})
		}
	}
	return all
}

// offeredHalf is the half that is asked for.
func offeredHalf(r *resources.Resource, usable offer, size int) placement.Half {
	half := placement.Half{Count: size}
	for _, id := range usable.must {
		half.Held = append(half.Held, r.Device(id).Placed())
	}
	for _, id := range usable.free {
		half.Free = append(half.Free, r.Device(id).Placed())
	}
	return half
}

// nodesOf are the NUMA nodes from which the asking container will get its devices. The devices that the
// kubelet offers show them; where those have none (excludeTopology), what the Topology Manager will choose
// for its demands is predicted, and false says that it will refuse.
func (d *deciding) nodesOf(q asking.Question, predict func() (hints.Mask, bool)) (map[int]bool, bool) {
	nodes := d.resources.Nodes(q.Resource, q.Available)
	if len(nodes) > 0 {
		return nodes, true
	}
	predicted, admitted := predict()
	for _, n := range predicted.Numbers() {
		nodes[n] = true
	}
	return nodes, admitted
}

// predict tells the NUMA nodes of a container whose whole request is known. Where its devices and CPUs do not
// fit together, as far as is known of the CPUs, the devices alone decide.
func (d *deciding) predict(c *asking.Container) (nodes hints.Mask, admitted bool) {
	demands := d.demands(c)
	if count := c.Asker.CPUs; count > 0 && d.cpus != nil {
		nodes, admitted = d.rule().Nodes(append(slices.Clip(demands),
			hints.CPUs(count, d.cpus.nodes, d.cpus.free))...)
	}
	if !admitted {
		nodes, admitted = d.rule().Nodes(demands...)
	}
	return nodes, admitted
}

// demands are those of a container whose whole request is known.
func (d *deciding) demands(c *asking.Container) []hints.Demand {
	var demands []hints.Demand
	for name, count := range c.Asker.Requests {
		other := d.resources[name]
		if other == nil {
			continue
		}
		demand := d.books().demand(count, other)
		for _, id := range slices.Concat(c.Devices[name], c.Inherits[name]) {
			demand.Reused.Add(other.Device(id).NUMA)
			demand.Free.Add(other.Device(id).NUMA)
		}
		demands = append(demands, demand)
	}
	return demands
}

// heldBy lists what a container has of a resource, or can take over from its pod's init containers.
func heldBy(c *asking.Container, r *resources.Resource) (all []placement.Device) {
	ids := c.Devices[r.Name]
	if len(ids) == 0 {
		ids = c.Inherits[r.Name]
	}
	for _, id := range ids {
		all = append(all, r.Device(id).Placed())
	}
	return all
}

// honour makes the devices that a scheduler chose part of the halves, as far as they can be had, and says for
// people what came of it.
func (d *deciding) honour(a *asking.Asker, all []wanted) string {
	if len(a.Chosen) == 0 {
		return ""
	}
	taken := 0
	var missing []string
	for _, name := range a.Chosen {
		n, held := choose(name, all)
		taken += n
		if n > 0 || held || !lacking(all) {
			continue
		}
		if why := d.whyNot(name, a, all); why != "" {
			missing = append(missing, name+" "+why)
		}
	}
	remark := fmt.Sprintf("%d devices as the scheduler chose", taken)
	if len(missing) > 0 {
		remark += "; impossible: " + strings.Join(missing[:min(len(missing), maxMissing)], ", ")
	}
	if more := len(missing) - maxMissing; more > 0 {
		remark += fmt.Sprintf(" and %d more", more)
	}
	return remark
}

// maxMissing is how many devices a remark names: a pod can choose some hundred.
const maxMissing = 4

// choose moves the free devices with a name from what may be chosen to what is decided, while there is room.
// The second result says whether the container has one of that name already.
func choose(name string, all []wanted) (moved int, held bool) {
	address, err := topology.ParseAddress(name)
	named := func(d placement.Device) bool { return d.ID == name || err == nil && d.Address == address }
	for i := range all {
		half := &all[i].half
		held = held || slices.ContainsFunc(half.Held, named)
		half.Free = slices.DeleteFunc(half.Free, func(d placement.Device) bool {
			if !named(d) || len(half.Held) >= half.Count {
				return false
			}
			half.Held = append(half.Held, d)
			moved++
			return true
		})
	}
	return moved, held
}

// lacking reports whether some half can still be chosen.
func lacking(all []wanted) bool {
	return slices.ContainsFunc(all, func(w wanted) bool { return len(w.half.Held) < w.half.Count })
}

// whyNot says why a device that a scheduler chose cannot be had; "" where another container of the pod has
// it.
func (d *deciding) whyNot(name string, a *asking.Asker, all []wanted) string {
	address, err := topology.ParseAddress(name)
	for _, w := range all {
		for id, device := range w.resource.Devices {
			if id != name && (err != nil || device.Address != address) {
				continue
			}
			switch held := d.books().holder(w.resource.Name, id); {
			case held != nil && held.UID == a.UID:
				return ""
			case held != nil:
				return "is held by " + ownerName(held)
			case !device.Healthy:
				return "is unhealthy"
			default:
				return "is not among what the kubelet offers"
			}
		}
	}
	return "is no device of a resource that the container asks for"
}
