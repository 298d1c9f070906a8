// SPDX-License-Identifier: Apache-2.0

package device

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/topology"
)

func TestAnnouncementRoundTrip(t *testing.T) {
	t.Parallel()
	want := Announcement{
		Devices: []Device{
			{ID: "a", Address: topology.Address{Domain: 0x10000, Bus: 0xff, Device: 0x1f, Function: 7},
				NUMA: topology.Node(0), Healthy: true},
			{ID: "b", Address: topology.Address{Bus: 1}, Unit: topology.Unit{Name: "0000:01:00.0/3", Shared: false}},
			{ID: "c", Address: topology.Address{Bus: 2}, Healthy: true, Degraded: true, Reason: "slow",
				Unit: topology.Unit{Name: "0000:02:00.0", Shared: true}},
		},
		Links: []topology.Link{
			{A: topology.Address{Bus: 1}, B: topology.Address{Bus: 2}, Type: topology.XGMI, Hops: 1, Count: 4},
		},
		Replicas: Packed,
	}
	got, err := Decode(want.Encode("amd.com/gpu", GPU))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.Devices, want.Devices) || !slices.Equal(got.Links, want.Links) ||
		got.Replicas != want.Replicas {
		t.Errorf("got %v, want %v", got, want)
	}
}

func FuzzAnnouncement(f *testing.F) {
	f.Add("amd.com/gpu", "gpu", "id", "0000:81:00.0", "0000:01:00.0")
	f.Add("", "nic", "", "", "x")
	f.Fuzz(func(t *testing.T, resource, kind, id, address, link string) {
		a, err := Decode(&api.Announcement{
			Resource: resource,
			Kind:     kind,
			Devices:  []*api.Device{{Id: id, Address: address}},
			Links:    []*api.Link{{A: address, B: link}},
		})
		if err == nil && (a.Devices[0].ID != id || resource == "") {
			t.Errorf("decoded %v", a)
		}
	})
}

// A reason that names a netdev with an odd name can be sent.
func TestOddReason(t *testing.T) {
	got := Device{Reason: "netdev e\xffth\x1b[2J\n0 " + strings.Repeat("ä", 200)}.Encode().GetReason()
	if len(got) > mostText || !strings.HasPrefix(got, "netdev e\uFFFDth?[2J?0 ä") || !utf8.ValidString(got) {
		t.Errorf("%q", got)
	}
}

// A device of a plugin that announces no unit is known by its ID.
func TestComplete(t *testing.T) {
	t.Parallel()
	unit := topology.Unit{Name: "0000:81:00.0/3", Shared: false}
	if got := (Device{ID: "amdgpu_xcp_3", Unit: unit}).Complete().Unit; got != unit {
		t.Errorf("announced is %v, and it counts as %v", unit, got)
	}
	if got := (Device{ID: "0000:0c:00.1"}).Complete().Unit; got != (topology.Unit{Name: "0000:0c:00.1"}) {
		t.Errorf("without an announced unit it is %v", got)
	}
}
