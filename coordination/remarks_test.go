// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/topology"
)

// claimedBy returns the holders as known last.
func claimedBy(holders ClaimHolders) *claimWatch {
	w := &claimWatch{}
	w.newest.Set(holders)
	return w
}

// TestNotesOfClaims: the status names the claims that withhold devices, each with its devices.
func TestNotesOfClaims(t *testing.T) {
	t.Parallel()
	devices := func(name string, ids ...string) *api.Resource {
		r := &api.Resource{Name: name}
		for _, id := range ids {
			r.Devices = append(r.Devices, &api.DeviceStatus{Device: &api.Device{Id: id}})
		}
		return r
	}
	resources := []*api.Resource{
		devices("gpu", "g0", "g1::0", "g1::1"), devices("vf", "v0", "v1"), devices("again", "v0"),
	}
	r := remarks{config: &Config{claims: claimedBy(ClaimHolders{
		"g0": "claim team/a", "v0": "claim team/a", "g1": "claim team/b",
	})}}
	const ending = ": unhealthy for the kubelet until the claim is deleted"
	want := []string{
		"claim team/a, prepared in DRA mode, withholds g0 v0" + ending,
		"claim team/b, prepared in DRA mode, withholds g1::0 g1::1" + ending,
	}
	if got := r.notes(t.Context(), resources); !slices.Equal(got, want) {
		t.Errorf("notes %q", got)
	}
	r.config.claims = claimedBy(nil)
	if got := r.notes(t.Context(), resources); len(got) > 0 {
		t.Errorf("without claims: %q", got)
	}
}

// A device of a claim is withheld under any ID: the driver has recorded its unit.
func TestRenamedDeviceOfClaimIsWithheld(t *testing.T) {
	t.Parallel()
	w := newWithholder(&Config{
		claims: claimedBy(ClaimHolders{"0000:81:00.0/7-0": "claim team/a"}), KubeletDir: t.TempDir(),
		Log: slog.New(slog.DiscardHandler),
	}, nil)
	listed, _ := w.withhold("gpu", device.GPU, []device.Device{
		{ID: "MIG-2", Unit: topology.Unit{Name: "0000:81:00.0/7-0"}, Healthy: true},
		{ID: "MIG-1", Unit: topology.Unit{Name: "0000:81:00.0/8-0"}, Healthy: true},
	})
	if listed[0].Healthy || !listed[1].Healthy {
		t.Errorf("listed %+v", listed)
	}
}

// TestEveryDeviceIsWithheld: while holders are unknown every device has one, and the status says why.
func TestEveryDeviceIsWithheld(t *testing.T) {
	for holders, want := range map[string]struct {
		id, note string
		has      bool
	}{
		"a":       {"b", "", false},
		everyUnit: {"b::3", "all devices are withheld: held", true},
	} {
		w := ClaimHolders{holders: "held"}
		if got := w.Has(want.id, topology.UnitOfID(want.id)); got != want.has {
			t.Errorf("%v: %s is held: %v", w, want.id, got)
		}
		notes := remarks{config: &Config{claims: claimedBy(w)}}.notes(t.Context(), nil)
		if got := strings.Join(notes, "\n"); got != want.note {
			t.Errorf("%v: notes %q", w, got)
		}
	}
}
