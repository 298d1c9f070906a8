// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/coordination/asking"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// useChosen adds the devices chosen by a scheduler to the halves, as far as available, and returns a remark
// for people.
func useChosen(b *books, a *asking.Asker, all []resourceHalf) string {
	if len(a.Chosen) == 0 {
		return ""
	}
	taken := 0
	var missing []string
	for _, name := range a.Chosen {
		n, held := moveChosen(name, all)
		taken += n
		if n > 0 || held || !areIncomplete(all) {
			continue
		}
		if why := whyUnavailable(b, name, a, all); why != "" {
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

// maxMissing limits the devices named in a remark: a pod can choose some hundred.
const maxMissing = 4

// moveChosen moves the free devices of a name to the held devices of their half, up to its count. The second
// result reports whether the container holds a device of the name already.
func moveChosen(name string, all []resourceHalf) (moved int, held bool) {
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

// areIncomplete reports whether any half has fewer held devices than its count.
func areIncomplete(all []resourceHalf) bool {
	return slices.ContainsFunc(all, func(h resourceHalf) bool { return len(h.half.Held) < h.half.Count })
}

// whyUnavailable returns the reason why a chosen device is unavailable; "" if held by the same pod.
func whyUnavailable(b *books, name string, a *asking.Asker, all []resourceHalf) string {
	address, err := topology.ParseAddress(name)
	for _, h := range all {
		for id, device := range h.resource.Devices {
			if id != name && (err != nil || device.Address != address) {
				continue
			}
			switch held := b.held.Of(h.resource.Name, id); {
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
