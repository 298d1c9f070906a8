// SPDX-License-Identifier: Apache-2.0

package device

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/topology"
)

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
			Unit: topology.Unit{Name: d.GetUnit(), Shared: d.GetShared()},
		}
		if d.Numa != nil {
			one.NUMA = topology.Node(int(d.GetNuma()))
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

// Encode converts an announcement to its wire format, without the version of the sender.
func Encode(resource string, kind Kind, a Announcement) *api.Announcement {
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
