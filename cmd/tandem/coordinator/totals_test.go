// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/coordination/api"
)

// on are devices on switches, all of one container.
func on(resource, kind string, switches ...string) *api.Resource {
	r := &api.Resource{Name: resource, Kind: kind, Connected: true}
	for _, name := range switches {
		r.Devices = append(r.Devices, &api.DeviceStatus{
			Device: &api.Device{Healthy: true}, Switch: name, Allocated: true,
			Owner: &api.Owner{Namespace: "team", Pod: "train", Container: "worker"},
		})
	}
	return r
}

func TestDegraded(t *testing.T) {
	t.Parallel()
	const a, b = "0000:08:00.0", "0000:09:00.0"
	for _, c := range []struct {
		name      string
		gpus, vfs []string
		want      int // GPUs that have no VF; 0 for a container that is not degraded
	}{
		{"pairs", []string{a, b}, []string{b, a}, 0},
		{"two on one switch", []string{a, a}, []string{a, b}, 1},
	} {
		s := NewStatus(&api.StatusResponse{Resources: []*api.Resource{
			on("amd.com/gpu", "gpu", c.gpus...), on("tandem.dev/vf", "vf", c.vfs...),
		}})
		var want []degradedPairs
		if c.want > 0 {
			want = []degradedPairs{{"team/train/worker", len(c.gpus), len(c.vfs), c.want}}
		}
		if diff := cmp.Diff(want, s.Degraded); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
		used := Totals{GPUs: Count{0, len(c.gpus)}, VFs: Count{0, len(c.vfs)}}
		if s.Totals != used {
			t.Errorf("%s: totals %+v of devices that a container has", c.name, s.Totals)
		}
	}
}
