package ledger

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/topology"
)

const (
	gpus = "amd.com/gpu"
	vfs  = "nvidia.com/vf"
)

// devices announces as many, two to a NUMA node.
func devices(bus uint8, count int) device.Announcement {
	var a device.Announcement
	for i := range count {
		address := topology.Address{Bus: bus, Function: uint8(i)}
		a.Devices = append(a.Devices,
			device.Device{ID: address.String(), Address: address, NUMA: topology.Node(i / 2), Healthy: true})
	}
	return a
}

func announced() *Ledger {
	l := New()
	l.Announce(gpus, device.GPU, devices(1, 4))
	l.Announce(vfs, device.VF, devices(2, 4))
	return l
}

// owners are those of all devices, by allocation.
func owners(l *Ledger) map[string]int {
	found := map[string]int{}
	for _, a := range l.Allocations() {
		for name, ids := range a.Devices {
			for id := range ids {
				found[name+" "+id] = a.ID
			}
		}
	}
	return found
}

// Whatever is recorded in whatever order, every device has one holder at the most, nothing that a copy does
// is seen in what it was copied from, and what is saved is what comes back.
func TestVerbsInAnyOrder(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		l := announced()
		for range 60 {
			before, seen := l, owners(l)
			l = copyOf(l)
			step(l, random)
			if err := l.Check(); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if !maps.Equal(seen, owners(before)) {
				t.Fatalf("seed %d: the copy has changed the original", seed)
			}
		}
		content, err := json.Marshal(l.Save())
		if err != nil {
			t.Fatal(err)
		}
		var saved Saved
		if err := json.Unmarshal(content, &saved); err != nil {
			t.Fatal(err)
		}
		again, err := Restore(saved)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if diff := cmp.Diff(owners(l), owners(again)); diff != "" || again.Check() != nil {
			t.Errorf("seed %d: owners (-saved +restored):\n%s%v", seed, diff, again.Check())
		}
	}
}

func copyOf(l *Ledger) *Ledger {
	copies := map[*Allocation]*Allocation{}
	return l.Clone(func(a *Allocation) *Allocation {
		if copies[a] == nil {
			copies[a] = a.Clone()
		}
		return copies[a]
	})
}

// step does one of the things that happen to a ledger.
func step(l *Ledger, random *rand.Rand) {
	name, bus := gpus, uint8(1)
	if random.IntN(2) == 0 {
		name, bus = vfs, 2
	}
	var ids []string
	for _, d := range devices(bus, 4).Devices {
		if random.IntN(2) == 0 {
			ids = append(ids, d.ID)
		}
	}
	owner := kubelet.Container{Pod: kubelet.Pod{Namespace: "team", Name: fmt.Sprint(random.IntN(4))}, Name: "c"}
	all := append(l.Allocations(), &Allocation{})
	a := all[random.IntN(len(all))]
	switch random.IntN(6) {
	case 0, 1:
		l.Allocate(a, name, ids, nil)
	case 2:
		l.Drop(a)
	case 3:
		l.Confirm(kubelet.View{Containers: map[kubelet.Container]kubelet.Devices{owner: {name: ids}}})
	case 4:
		l.Announce(name, l.Resource(name).Kind, devices(bus, random.IntN(5)))
	default:
		for _, id := range ids {
			l.Release(name, id)
		}
	}
}

// What a plugin announces no more stays while somebody has it, unhealthy, and is never offered.
func TestHeldDevicesOutliveTheirAnnouncement(t *testing.T) {
	t.Parallel()
	l := announced()
	held := devices(1, 4).Devices[3]
	l.Allocate(&Allocation{}, gpus, []string{held.ID}, nil)
	l.Announce(gpus, device.GPU, devices(1, 1))
	if got := l.Resource(gpus).Devices; len(got) != 2 || got[held.ID].Healthy {
		t.Errorf("known are %v", got)
	}
	l.Release(gpus, held.ID)
	if free := l.Free(l.Resource(gpus)); len(free) != 1 || free[0].ID == held.ID {
		t.Errorf("free are %v", free)
	}
	l.Announce(gpus, device.GPU, devices(1, 1))
	if got := l.Resource(gpus).Devices; len(got) != 1 {
		t.Errorf("nobody has it any more, and known are %v", got)
	}
}

// A saved ledger that contradicts itself is refused.
func TestRestoreRefusesContradictions(t *testing.T) {
	t.Parallel()
	id := devices(1, 1).Devices[0].ID
	held := func(id, sequence int, device string) *Allocation {
		return &Allocation{ID: id, Devices: map[string]map[string]int{gpus: {device: sequence}}}
	}
	for name, all := range map[string][]*Allocation{
		"nothing":             {nil},
		"no ID":               {held(0, 1, id)},
		"one ID twice":        {held(1, 1, id), held(1, 1, "other")},
		"one device twice":    {held(1, 1, id), held(2, 1, id)},
		"sequence to come":    {held(1, 9, id)},
		"sequence below zero": {held(1, -1, id)},
	} {
		if _, err := Restore(Saved{Sequence: 1, Allocations: all}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	l, err := Restore(Saved{Sequence: 1, Allocations: []*Allocation{held(7, 1, id)}})
	if err != nil {
		t.Fatal(err)
	}
	next := &Allocation{}
	l.Allocate(next, vfs, []string{"x"}, nil)
	if ids := []int{l.Holder(gpus, id).ID, next.ID}; !slices.Equal(ids, []int{7, 8}) {
		t.Errorf("IDs %v, want 7 and the next", ids)
	}
}

// The kubelet's checkpoint frees what it shows with nobody, but not what the kubelet is giving out just now.
func TestReconcileSparesTheNewest(t *testing.T) {
	t.Parallel()
	l := announced()
	ids := devices(1, 2).Devices
	l.Allocate(&Allocation{}, gpus, []string{ids[0].ID}, nil)
	l.Allocate(&Allocation{}, gpus, []string{ids[1].ID}, nil)
	l.Reconcile(kubelet.Checkpoint{}, nil)
	if l.Holder(gpus, ids[0].ID) != nil || l.Holder(gpus, ids[1].ID) == nil {
		t.Errorf("held are %v", owners(l))
	}
}
