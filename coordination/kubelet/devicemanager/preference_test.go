// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// view has four GPUs, two on each of two NUMA nodes, and four VFs, with or without hints.
func view(hinted bool) *View {
	var gpus, vfs []model.Device
	for i := range 4 {
		numa := topology.Node(i / 2)
		gpus = append(gpus, model.Device{Device: placement.Device{ID: fmt.Sprint("g", i)}, NUMA: numa})
		if !hinted {
			numa = topology.NUMANode{}
		}
		vfs = append(vfs, model.Device{Device: placement.Device{ID: fmt.Sprint("v", i)}, NUMA: numa})
	}
	n := NewDevices([]model.Resource{
		{Name: "gpu", Kind: model.GPU, Devices: gpus}, {Name: "vf", Kind: model.VF, Devices: vfs},
	})
	v := &View{Node: n, Free: n.OfKind[model.GPU].Clone(), Taken: n.NewSet()}
	v.Free.Include(n.OfKind[model.VF])
	return v
}

func TestHalves(t *testing.T) {
	t.Parallel()
	cpus := model.Demand{Count: 2, All: model.PerNode{4, 4}, Free: model.PerNode{1, 4}}
	for _, c := range []struct {
		name        string
		hinted      bool
		given, left []string
		resource    int
		must, free  []string
		size        int
		requests    model.Requests
		cpus        *model.Demand
		want        string
	}{
		{name: "on the offered nodes", hinted: true, resource: gpu, free: []string{"g2", "g3"}, size: 1,
			requests: model.Requests{{Resource: gpu, Count: 1}, {Resource: vf, Count: 2}},
			want:     "gpu 1: held [], free [g2 g3]; vf 2: held [], free [v2 v3]"},
		{name: "must include", hinted: true, resource: gpu, must: []string{"g0"}, free: []string{"g1"}, size: 2,
			requests: model.Requests{{Resource: gpu, Count: 2}},
			want:     "gpu 2: held [g0], free [g1]"},
		{name: "predicted nodes", resource: vf, free: []string{"v0", "v3"}, size: 2,
			requests: model.Requests{{Resource: gpu, Count: 2}, {Resource: vf, Count: 2}},
			want:     "gpu 2: held [], free [g0 g1]; vf 2: held [], free [v0 v3]"},
		{name: "nodes with CPUs", resource: vf, free: []string{"v0"}, size: 1, cpus: &cpus,
			requests: model.Requests{{Resource: gpu, Count: 2}, {Resource: vf, Count: 1}},
			want:     "gpu 2: held [], free [g2 g3]; vf 1: held [], free [v0]"},
		{name: "no nodes with the CPUs", resource: vf, free: []string{"v0"}, size: 1,
			cpus:     &model.Demand{Count: 5, All: model.PerNode{4, 4}, Free: model.PerNode{4, 4}},
			requests: model.Requests{{Resource: gpu, Count: 2}, {Resource: vf, Count: 1}},
			want:     "gpu 2: held [], free [g0 g1]; vf 1: held [], free [v0]"},
		{name: "given before", given: []string{"g2"}, left: []string{"g0"}, resource: vf, free: []string{"v0"},
			size: 1, requests: model.Requests{{Resource: gpu, Count: 1}, {Resource: vf, Count: 1}},
			want: "gpu 1: held [g2], free [g3]; vf 1: held [], free [v0]"},
		{name: "more left than requested", hinted: true, left: []string{"g0", "g1"}, resource: vf,
			free: []string{"v0", "v1"}, size: 1,
			requests: model.Requests{{Resource: gpu, Count: 1}, {Resource: vf, Count: 1}},
			want:     "gpu 1: held [], free [g0 g1]; vf 1: held [], free [v0 v1]"},
		{name: "none requested", hinted: true, resource: vf, free: []string{"v0", "v1"}, size: 1,
			requests: model.Requests{{Resource: gpu}, {Resource: vf, Count: 1}},
			want:     "vf 1: held [], free [v0 v1]"},
	} {
		v := view(c.hinted)
		v.Allocated, v.Left = v.Node.Select(c.given), v.Node.Select(c.left)
		v.Free.Exclude(v.Allocated)
		v.Free.Exclude(v.Left)
		q := Question{
			Resource: c.resource, Must: v.Node.Select(c.must), Free: v.Node.Select(c.free), Size: c.size,
		}
		var halves []string
		for _, h := range v.Halves(&q, c.requests, c.cpus) {
			halves = append(halves, fmt.Sprintf("%s %d: held %v, free %v", v.Node.Resources[h.Resource].Name,
				h.Count, ids(v.Node.Devices(h.Held)), ids(v.Node.Devices(h.Free))))
		}
		if got := strings.Join(halves, "; "); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

func ids(devices []placement.Device) []string {
	var list []string
	for _, d := range devices {
		list = append(list, d.ID)
	}
	return list
}

// TestPlacement expects each device in its list: free ones are spare as well, and placement keeps the first.
func TestPlacement(t *testing.T) {
	t.Parallel()
	v := view(true)
	v.Taken = v.Node.Select([]string{"g3", "v3"})
	v.Free.Exclude(v.Taken)
	r := v.Placement(v.Expected(model.Requests{{Resource: gpu, Count: 2}, {Resource: vf}}, 1))
	got := fmt.Sprint(len(r.GPUs), len(r.VFs), ids(r.GPUs[0].Free), ids(r.Spare.GPUs), ids(r.Spare.VFs),
		ids(r.Taken.GPUs), ids(r.Taken.VFs))
	if want := "1 0 [g0 g1] [g0 g1 g2] [v0 v1 v2] [g3] [v3]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
