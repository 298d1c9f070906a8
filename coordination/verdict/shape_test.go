// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/publish"
	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/test/published"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// Placement makes the same choices on the machine's own tree and on the tree of the published object.
func TestSameChoice(t *testing.T) {
	t.Parallel()
	for _, name := range machines.Names() {
		for vfs, rails := range map[int]bool{1: false, 4: false, 8: true} {
			t.Run(fmt.Sprint(name, "/", vfs), func(t *testing.T) {
				t.Parallel()
				w := load(t, name, vfs, rails)
				random := rand.New(rand.NewPCG(1, uint64(vfs)))
				for range 100 {
					w.compare(t, random)
				}
			})
		}
	}
}

// world is a machine, and its publication.
type world struct {
	tree      *topology.Tree
	resources []published.Resource
	machine   *shape
}

// load reads a recorded machine. With rails every second PF has a resource of its own, whose name sorts
// before the other.
func load(t *testing.T, name string, vfs int, rails bool) *world {
	t.Helper()
	_, tree := machines.Read(t, name, vfs)
	w := &world{tree: tree, resources: published.Resources(tree, true)}
	if rails {
		w.split()
	}
	f := publish.Facts{Tree: w.tree, Resources: published.Announce(w.resources...)}
	for _, n := range w.tree.NUMANodes() {
		f.NUMANodes = append(f.NUMANodes, v1alpha1.NUMANode{Number: n})
	}
	spec := publish.BuildSpec(f, nil)
	made, err := newShape(&spec)
	if err != nil {
		t.Fatal(err)
	}
	w.machine = made
	return w
}

// split makes VFs of every second PF another resource.
func (w *world) split() {
	last := len(w.resources) - 1
	both := w.resources[last]
	other := published.Resource{Name: "tandem.dev/rail", Kind: both.Kind}
	rest := published.Resource{Name: both.Name, Kind: both.Kind}
	pfs := map[topology.Address]int{}
	for _, d := range both.Devices {
		vf, _ := w.tree.Device(d.Address)
		pf := vf.Function()
		if _, seen := pfs[pf]; !seen {
			pfs[pf] = len(pfs)
		}
		if pfs[pf]%2 == 1 {
			other.Devices = append(other.Devices, d)
		} else {
			rest.Devices = append(rest.Devices, d)
		}
	}
	w.resources = append(w.resources[:last], other, rest)
}

// compare puts the same random question to both trees.
func (w *world) compare(t *testing.T, random *rand.Rand) {
	t.Helper()
	var requests [2]placement.Request
	for i, r := range w.resources {
		made := devicesOf(w.machine, i)
		var halves [2]placement.Half
		var taken [2][]placement.Device
		for n, d := range r.Devices {
			both := [2]placement.Device{d.Placed(), made[n]}
			gone := random.IntN(3) == 0
			for k := range both {
				if gone {
					taken[k] = append(taken[k], both[k])
				} else {
					halves[k].Free = append(halves[k].Free, both[k])
				}
			}
		}
		count := random.IntN(min(8, len(halves[0].Free)) + 1)
		for k := range requests {
			halves[k].Count = count
			if r.Kind == "gpu" {
				requests[k].GPUs, requests[k].Taken.GPUs = []placement.Half{halves[k]}, taken[k]
			} else {
				requests[k].VFs = append(requests[k].VFs, halves[k])
				requests[k].Taken.VFs = append(requests[k].Taken.VFs, taken[k]...)
			}
		}
	}
	own, err := placement.Choose(w.tree, requests[0])
	if err != nil {
		t.Fatal(err)
	}
	other, err := placement.Choose(w.machine.tree, requests[1])
	if err != nil {
		t.Fatal(err)
	}
	if own.Reason != other.Reason || w.ownPlaces(own) != w.otherPlaces(other) {
		t.Errorf("by the machine's tree\n%s\n%s\nby the published one\n%s\n%s", own.Reason,
			w.ownPlaces(own), other.Reason, w.otherPlaces(other))
	}
}

// ownPlaces returns the functions of a choice: VFs of one PF are equivalent for others.
func (w *world) ownPlaces(c placement.Choice) string {
	return functions(w.tree, c)
}

func (w *world) otherPlaces(c placement.Choice) string { return functions(w.machine.tree, c) }

func functions(tree *topology.Tree, c placement.Choice) string {
	var names []string
	for _, d := range slices.Concat(c.GPUs, c.VFs) {
		function, ok := tree.Device(d.Address)
		if !ok {
			names = append(names, "nowhere")
			continue
		}
		names = append(names, function.Function().String())
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// devicesOf returns the devices of a resource by number.
func devicesOf(s *shape, resource int) []placement.Device {
	return s.devices.Devices(s.devices.Resources[resource].All)
}

// switchesOf returns the published switches of devices.
func switchesOf(tree *topology.Tree, resources ...published.Resource) []v1alpha1.Switch {
	f := publish.Facts{Tree: tree, Resources: published.Announce(resources...)}
	return publish.BuildSpec(f, nil).Switches
}

// Redirecting bridges, links and degraded links survive the conversion.
func TestOddities(t *testing.T) {
	t.Parallel()
	spec := v1alpha1.Spec{
		Resources: []v1alpha1.Resource{
			{Name: "gpu", Kind: v1alpha1.GPU, Devices: 3,
				Addresses: strings.Fields("0000:03:00.0 0000:04:00.0 0000:05:00.0")},
			{Name: "vf", Kind: v1alpha1.VF, Devices: 4, Functions: []v1alpha1.Set{"0-1", "2-3"}, Degraded: "1",
				Addresses: strings.Fields("0000:06:00.0 0000:06:00.1")},
		},
		Switches: []v1alpha1.Switch{{
			Name: "0000:00:01.0", Path: "pci0000:00/0000:00:01.0", NUMA: new(1),
			Devices: map[string]v1alpha1.Set{"gpu": "0-2", "vf": "0-3"},
			Below: []v1alpha1.Below{
				{Path: "0000:01:00.0", Redirected: 1, Devices: map[string]v1alpha1.Set{"gpu": "0"}},
				{Path: "0000:01:00.0", Redirected: 2, Devices: map[string]v1alpha1.Set{"gpu": "1"}},
				{Path: "0000:01:00.0", Devices: map[string]v1alpha1.Set{"vf": "0-3"}},
			},
		}},
		Links:     []v1alpha1.Link{{A: "gpu/0", B: "gpu/2", Type: "XGMI", Hops: 1, Count: 2}},
		NUMANodes: []v1alpha1.NUMANode{{Number: 0}, {Number: 1}},
	}
	m, err := newShape(&spec)
	if err != nil {
		t.Fatal(err)
	}
	gpus, vfs := devicesOf(m, 0), devicesOf(m, 1)
	var redirected []int
	for _, d := range gpus {
		redirected = append(redirected, m.tree.Redirected(d.Address))
	}
	if want := []int{1, 2, 0}; !slices.Equal(redirected, want) {
		t.Errorf("redirected %v, want %v", redirected, want)
	}
	if got := m.tree.Redirected(vfs[0].Address); got != 0 {
		t.Errorf("VF without a redirect: redirected %d", got)
	}
	for i, want := range []topology.Level{topology.PIX, topology.PIX, topology.PXB} {
		if got := m.tree.Distance(gpus[i].Address, vfs[0].Address).Level; got != want {
			t.Errorf("GPU %d is %v, want %v", i, got, want)
		}
	}
	pf, ok := m.tree.Device(topology.Address{Bus: 6, Function: 1})
	if !ok || !pf.PCIe.Degraded() || len(pf.VFs) != 2 {
		t.Errorf("PF %+v", pf)
	}
	if len(m.links) != 1 || m.links[0].A != gpus[0].Address || m.links[0].Count != 2 {
		t.Errorf("links %+v", m.links)
	}
	again := switchesOf(m.tree,
		published.Resource{Name: "gpu", Devices: []device.Device{
			{ID: "0", Address: gpus[0].Address}, {ID: "2", Address: gpus[2].Address},
		}},
		published.Resource{Name: "vf", Devices: []device.Device{{Address: vfs[0].Address}}})
	if len(again) != 1 || again[0].Path != spec.Switches[0].Path || len(again[0].Below) != 2 {
		t.Errorf("again %+v", again)
	}
}

// A contradictory object gives an error that names the contradiction.
func TestContradictions(t *testing.T) {
	t.Parallel()
	for want, spoil := range map[string]func(*v1alpha1.Spec){
		"device 9 of 8":          func(s *v1alpha1.Spec) { s.Switches[0].Devices["gpu"] = "9" },
		"parse set":              func(s *v1alpha1.Spec) { s.Switches[0].Devices["gpu"] = "x" },
		"read path pci0000:00/x": func(s *v1alpha1.Spec) { s.Switches[0].Path = "pci0000:00/x" },
		"1 addresses of 8 functions": func(s *v1alpha1.Spec) {
			s.Resources[0].Addresses = []string{"0000:01:00.0"}
		},
		"no such device": func(s *v1alpha1.Spec) {
			s.Links = []v1alpha1.Link{{A: "gpu/0", B: "gpu/8"}}
		},
	} {
		spec := v1alpha1.Spec{
			Resources: []v1alpha1.Resource{{Name: "gpu", Kind: v1alpha1.GPU, Devices: 8}},
			Switches: []v1alpha1.Switch{{
				Name: "a", Path: "pci0000:00/0000:00:01.0", Devices: map[string]v1alpha1.Set{"gpu": "0"},
			}},
		}
		spoil(&spec)
		if _, err := newShape(&spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
