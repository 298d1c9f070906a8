// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/test/best"
	"github.com/tandem-k8s/tandem/test/model"
	"github.com/tandem-k8s/tandem/topology"
)

// apart returns the number of pairs that are not on one switch.
func apart(pairs best.Pairs) (n int) {
	for level, count := range pairs {
		if !topology.Level(level).Direct() {
			n += count
		}
	}
	return n
}

// bestOf returns the best pairs of the halves of a container.
func (s *Simulation) bestOf(halves map[string]best.Side) (best.Pairs, error) {
	tree := s.hardware.Present()
	return best.Shared(halves[model.GPUs], halves[model.VFs], func(gpu, vf topology.Address) topology.Level {
		return tree.Distance(gpu, vf).Level
	})
}

// addresses returns the addresses of devices of a resource.
func (s *Simulation) addresses(resource string, ids []string) (addresses []topology.Address) {
	for _, d := range s.kubelet.Devices[resource] {
		if slices.Contains(ids, d.ID) {
			addresses = append(addresses, d.Address)
		}
	}
	return addresses
}

// held returns devices as the half of a container that holds the devices.
func (s *Simulation) held(resource string, ids []string) best.Side {
	return best.Of(s.addresses(resource, ids))
}

// open returns the choice of a container at its admission, of devices that are still healthy.
func (s *Simulation) open(c *model.Container, resource string) best.Side {
	free := s.addresses(resource, slices.DeleteFunc(slices.Clone(c.Choice[resource]), func(id string) bool {
		return s.unrecorded()[id] != nil
	}))
	must := s.addresses(resource, c.Must[resource])
	return best.Side{Held: must, Free: free, Want: min(c.Requests[resource], len(must)+len(free))}
}

// pairsOf returns the pairs of the devices of a container.
func (s *Simulation) pairsOf(c *model.Container) (best.Pairs, error) {
	return s.bestOf(map[string]best.Side{
		model.GPUs: s.held(model.GPUs, c.Devices[model.GPUs]), model.VFs: s.held(model.VFs, c.Devices[model.VFs]),
	})
}

// levelsOf returns the distances of a container's pairs, for people; "" for a container without pairs.
func (s *Simulation) levelsOf(c *model.Container) string {
	if len(c.Devices[model.GPUs]) == 0 || len(c.Devices[model.VFs]) == 0 {
		return ""
	}
	got, err := s.pairsOf(c)
	return fmt.Sprint(got, err)
}

// isUnknown reports whether a container runs whose record both the kubelet and the coordinator have lost: its
// pod looks like one in admission, and nobody is refused for what another may have asked for.
func (s *Simulation) isUnknown() bool { return len(s.unrecorded()) > 0 && s.forgotten }

// isForced reports whether the kubelet offered a container too few devices besides those of running
// containers whose records are lost, as far as the coordinator still knows, or gave it one unasked.
func (s *Simulation) isForced(c *model.Container) bool {
	if len(s.unrecorded()) == 0 || s.forgotten {
		return s.forgotten
	}
	for resource, want := range c.Requests {
		isLost := func(id string) bool { return s.unrecorded()[id] != nil }
		half := s.open(c, resource)
		if len(half.Held)+len(half.Free) < want || slices.ContainsFunc(c.Must[resource], isLost) {
			return true
		}
	}
	return false
}

// checkPairs: the pairs of a container are as good as the best of the devices that were free.
func (s *Simulation) checkPairs(p *model.Pod, c *model.Container) {
	got, err := s.pairsOf(c)
	if err != nil {
		s.wrong(brokenContract, "%v", err)
		return
	}
	if s.options.requires(p) && s.options.Source != "" && apart(got) > 0 && !s.isUnknown() {
		s.wrong(notEnforced, "%s/%s %v has %v", p.Name, c.Name, c.Devices, got)
	}
	if c.Reused || len(c.Asked) < 2 || s.options.Source == "" || s.isForced(c) {
		return
	}
	most, err := s.bestOf(map[string]best.Side{
		model.GPUs: s.open(c, model.GPUs), model.VFs: s.open(c, model.VFs),
	})
	if err != nil || got != most {
		s.wrong(notBest, "%s/%s %v has %v, best %v, %v", p.Name, c.Name, c.Requests, got, most, err)
	}
}

// isApart reports whether a container with devices cannot have all its pairs on one switch each.
func (s *Simulation) isApart(p *model.Pod, c *model.Container, resource string, ids []string) bool {
	halves := map[string]best.Side{}
	for name := range c.Requests {
		has := c.Devices[name]
		if name == resource {
			has = ids
		}
		if len(has) > 0 {
			halves[name] = s.held(name, has)
		} else {
			halves[name] = s.open(c, name)
		}
	}
	most, err := s.bestOf(halves)
	return p.Inherits(c) || s.isForced(c) || err != nil || apart(most) > 0
}

// checkStatus: in a calm the coordinator's holders are the kubelet's. With PodResources alone a device of a
// pod that the kubelet has rejected may count as held.
func (s *Simulation) checkStatus() error {
	if !s.settled() {
		return nil
	}
	if err := s.sync(); err != nil {
		return err
	}
	if differences := s.differences(); len(differences) > 0 {
		s.wrong(wrongStatus, "%s", strings.Join(differences, "; "))
	}
	return nil
}

// differences returns the differences between the coordinator's holders and the kubelet's, for people. A VF
// is the same device under each of its names.
func (s *Simulation) differences() (all []string) {
	server := s.server()
	if server == nil {
		return nil
	}
	for _, r := range server.member.Resources() {
		name := r.GetName()
		if name == otherVFs { // as which the kubelet gives none
			name = model.VFs
		}
		holders := s.kubelet.Holders(name)
		for _, d := range r.GetDevices() {
			id, pod := d.GetDevice().GetId(), holders[d.GetDevice().GetId()]
			lost := s.unrecorded()[id]
			switch {
			case len(lost) > 0 && s.forgotten:
			case len(lost) > 0 && !d.GetAllocated():
				all = append(all, fmt.Sprintf("%s is held by %s without a record, and counts as free", id, lost[0].Name))
			case len(lost) > 0:
			case pod == nil && d.GetAllocated() && s.options.Source != "":
				all = append(all, fmt.Sprintf("%s is free, and counts as held by %s/%s", id, d.GetOwner().GetPod(),
					d.GetOwner().GetContainer()))
			case pod != nil && !d.GetAllocated():
				all = append(all, fmt.Sprintf("%s is held by %s, and counts as free", id, pod.Name))
			}
		}
	}
	return all
}

// kindOf returns the kind of a resource of the model.
func kindOf(resource string) device.Kind {
	if resource == model.GPUs {
		return device.GPU
	}
	return device.VF
}
