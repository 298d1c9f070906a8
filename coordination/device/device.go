// SPDX-License-Identifier: Apache-2.0

// Package device describes devices and their resources for the coordination of a node, as announced by the
// plugins.
package device

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// Kind is the kind of a resource: one half of a pair.
type Kind string

// Kinds of resources.
const (
	GPU Kind = "gpu"
	VF  Kind = "vf"
)

// Other returns the other kind of a pair.
func (k Kind) Other() Kind {
	if k == GPU {
		return VF
	}
	return GPU
}

// Plural returns the word for several devices of the kind.
func (k Kind) Plural() string {
	if k == GPU {
		return "GPUs"
	}
	return "VFs"
}

// Device is a device as announced by its plugin.
type Device struct {
	ID      string            // the kubelet's device ID
	Unit    topology.Unit     // of the zero value see [Device.Complete]
	Address topology.Address  // PCI function; for a partition, the function of its card
	NUMA    topology.NUMANode // as reported to the kubelet: unknown if the plugin sends no TopologyInfo
	Healthy bool
	VRAM    uint64 // memory of the card in bytes; 0 if unknown

	Degraded bool   // chosen last among equally distant devices
	Reason   string // for being unhealthy or degraded, for people; "" if unknown, or for a good device
}

// Words for the health of a device that is not good.
const (
	Failed   = "failed"
	Degraded = "degraded"
)

// Health returns [Failed], [Degraded] or, for a good device, "". An unhealthy device without a reason has not
// failed: its plugin is away or withholds it.
func Health(d *api.Device) string {
	switch {
	case d.GetReason() == "":
		return ""
	case !d.GetHealthy():
		return Failed
	case d.GetDegraded():
		return Degraded
	default:
		return ""
	}
}

// Withhold returns the device as one that nobody can get now. A reason remains only for a device that is
// unhealthy anyway: a degraded device that is withheld has not failed.
func (d Device) Withhold() Device {
	if d.Healthy {
		d.Healthy, d.Reason = false, ""
	}
	return d
}

// Announcement is the complete description of one resource by its plugin.
type Announcement struct {
	Devices []Device
	Links   []topology.Link // links between GPUs
	// Replicas is the rule for shared devices.
	Replicas Replicas
	// Hints is why the devices have NUMA nodes or none, for people; "" if nobody decided.
	Hints string

	Own bool // announced by a plugin of this process, which has read the PCI tree for it
}

// Complete returns the device with its unit: by the ID if the plugin has announced none.
func (d Device) Complete() Device {
	if d.Unit == (topology.Unit{}) {
		d.Unit = topology.UnitOfID(d.ID)
	}
	return d
}

// Placed returns the device for package placement. The kubelet may offer an unhealthy device for a moment:
// the device then counts as degraded.
func (d Device) Placed() placement.Device {
	return placement.Device{ID: d.ID, Address: d.Address, Degraded: d.Degraded || !d.Healthy}
}

// Compare orders devices by address and ID.
func Compare(a, b Device) int {
	return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.ID, b.ID))
}

// AddTo adds a half of this kind to a request.
func (k Kind) AddTo(request *placement.Request, half placement.Half) {
	if k == GPU {
		request.GPUs = append(request.GPUs, half)
	} else {
		request.VFs = append(request.VFs, half)
	}
}

// SameSet reports whether two nonempty lists contain the same IDs.
func SameSet(a, b []string) bool {
	return len(a) > 0 && slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// All returns a half in which all devices are held.
func All(devices []Device) placement.Half {
	half := placement.Half{Count: len(devices)}
	for _, d := range devices {
		half.Held = append(half.Held, d.Placed())
	}
	return half
}

// Replicas is the rule for the choice among the replicas of shared devices, "" for none. As in NVIDIA's own
// plugin, use is counted per MIG device, so that MIG devices without replicas are all equal.
type Replicas string

// The rules (--shared-devices-allocation-policy).
const (
	Distributed Replicas = "distributed" // of the least used device
	Packed      Replicas = "packed"      // of the most used one
)

// Permit returns the free devices that the rule permits for a container that needs size devices, held ones
// included; all are the resource's devices. It leaves the choice among equally used devices, unless the
// request exceeds their replicas. If held and free sufficed for size devices, the result suffices too.
func (r Replicas) Permit(all, held, free []string, size int) []string {
	if r == "" || !slices.ContainsFunc(slices.Concat(held, free), isReplica) {
		return free
	}
	used, left := map[string]int{}, map[string][]string{}
	for _, id := range all {
		used[original(id)]++
	}
	for _, id := range slices.Compact(slices.Sorted(slices.Values(free))) {
		if _, known := used[original(id)]; known && !slices.Contains(held, id) {
			left[original(id)] = append(left[original(id)], id)
		}
	}
	for of, replicas := range left {
		used[of] -= len(replicas)
	}
	size -= len(held)
	var permitted []string
	for len(permitted) < size && len(left) > 0 {
		best := r.leaders(left, used)
		if r == Packed && len(permitted)+1 < size {
			best = best[:1] // whichever is begun is the best from then on
		}
		if len(permitted) == 0 && len(best) >= size {
			return best // any of them fits
		}
		for _, id := range best[:min(len(best), size-len(permitted))] {
			permitted = append(permitted, id)
			take(left, used, id)
		}
	}
	return permitted
}

// leaders returns the first free replica of every best device.
func (r Replicas) leaders(left map[string][]string, used map[string]int) []string {
	better := func(a, b int) bool { return a < b }
	if r == Packed {
		better = func(a, b int) bool { return a > b }
	}
	var best []string
	for of, replicas := range left {
		switch {
		case len(best) == 0 || better(used[of], used[original(best[0])]):
			best = []string{replicas[0]}
		case used[of] == used[original(best[0])]:
			best = append(best, replicas[0])
		}
	}
	slices.Sort(best)
	return best
}

func take(left map[string][]string, used map[string]int, id string) {
	of := original(id)
	used[of]++
	left[of] = left[of][1:]
	if len(left[of]) == 0 {
		delete(left, of)
	}
}

func original(id string) string {
	id, _ = topology.CutReplica(id)
	return id
}

func isReplica(id string) bool {
	_, replica := topology.CutReplica(id)
	return replica
}

// Decode converts an announcement from its wire format.
func Decode(m *api.Announcement) (Announcement, error) {
	if m.GetResource() == "" || (Kind(m.GetKind()) != GPU && Kind(m.GetKind()) != VF) {
		return Announcement{}, fmt.Errorf("announce %q: kind %q is neither %s nor %s",
			m.GetResource(), m.GetKind(), GPU, VF)
	}
	a := Announcement{Replicas: Replicas(m.GetReplicas()), Hints: printable(m.GetHints())}
	for _, d := range m.GetDevices() {
		address, err := topology.ParseAddress(d.GetAddress())
		if err != nil {
			return Announcement{}, fmt.Errorf("announce %s of %s: %w", d.GetId(), m.GetResource(), err)
		}
		one := Device{
			ID: d.GetId(), Address: address, Healthy: d.GetHealthy(), VRAM: d.GetVram(),
			Degraded: d.GetDegraded(), Reason: printable(d.GetReason()),
			Unit: topology.Unit{Name: d.GetUnit(), Shared: d.GetShared()}, NUMA: NUMANode(d),
		}
		a.Devices = append(a.Devices, one)
	}
	for _, l := range m.GetLinks() {
		from, err := topology.ParseAddress(l.GetA())
		to, err2 := topology.ParseAddress(l.GetB())
		if err := errors.Join(err, err2); err != nil {
			return Announcement{}, fmt.Errorf("announce link of %s: %w", m.GetResource(), err)
		}
		a.Links = append(a.Links, topology.Link{
			A: from, B: to, Type: topology.LinkType(l.GetType()), Hops: int(l.GetHops()), Count: int(l.GetCount()),
		})
	}
	return a, nil
}

// NUMANode returns the NUMA node of a device in its wire format.
func NUMANode(d *api.Device) topology.NUMANode {
	if d == nil || d.Numa == nil {
		return topology.NUMANode{}
	}
	return topology.Node(int(d.GetNuma()))
}

// mostText is the maximum number of bytes of a text for people: those of Tandem are shorter.
const mostText = 256

// printable returns at most mostText bytes of a text, all of them printable: a reason can name a netdev,
// whose name is any bytes, and neither messages nor metrics take text that is not UTF-8.
func printable(text string) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
	if len(text) > mostText {
		text = strings.ToValidUTF8(text[:mostText], "")
	}
	return text
}

// Encode converts the announcement of a resource to its wire format, without the version of the sender.
func (a Announcement) Encode(resource string, kind Kind) *api.Announcement {
	m := &api.Announcement{
		Resource: resource, Kind: string(kind), Replicas: string(a.Replicas), Hints: printable(a.Hints),
	}
	for _, d := range a.Devices {
		m.Devices = append(m.Devices, d.Encode())
	}
	for _, l := range a.Links {
		m.Links = append(m.Links, &api.Link{
			A: l.A.String(), B: l.B.String(), Type: string(l.Type), Hops: uint32(l.Hops), Count: uint32(l.Count),
		})
	}
	return m
}

// Encode converts a device to its wire format.
func (d Device) Encode() *api.Device {
	m := &api.Device{
		Id: d.ID, Address: d.Address.String(), Healthy: d.Healthy, Vram: d.VRAM,
		Degraded: d.Degraded, Reason: printable(d.Reason), Unit: d.Unit.Name, Shared: d.Unit.Shared,
	}
	if n, known := d.NUMA.Number(); known {
		numa := uint32(n)
		m.Numa = &numa
	}
	return m
}
