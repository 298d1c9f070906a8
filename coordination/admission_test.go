package coordination

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

const (
	gpus = "amd.com/gpu"
	vfs  = "nvidia.com/vf"
)

// wish is what a container asks for.
type wish struct{ gpus, vfs int }

// admission plays the kubelet towards a coordinator: it picks NUMA nodes, asks in random order, does not ask where there is no
// choice, and shows pods in PodResources as the kubelet does.
type admission struct {
	t            *testing.T
	random       *rand.Rand
	now          time.Time
	coordinator  *coordinator
	pods         map[kubelet.Pod]map[string]kubelet.Devices // by container; "init" is not shown
	order        []kubelet.Pod
	away         bool // PodResources does not answer
	free         map[string][]Device
	all          map[string][]Device
	recordedPods map[kubelet.Pod]map[string]kubelet.Devices // as pods, init containers kept
	kubeletDir   string                                     // "" if there is no checkpoint
	guessed      bool                                       // the container got its VFs first and without a question: their order can only be guessed
}

func newAdmission(t *testing.T, machine string, vfsPerPF int, excludeTopology bool, seed uint64) *admission {
	t.Helper()
	recorded, err := machines.Load(machine, vfsPerPF)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := topology.Read(recorded.FS())
	if err != nil {
		t.Fatal(err)
	}
	a := &admission{t: t, random: rand.New(rand.NewPCG(seed, 1)), now: time.Unix(1000, 0), pods: map[kubelet.Pod]map[string]kubelet.Devices{}, recordedPods: map[kubelet.Pod]map[string]kubelet.Devices{}}
	a.coordinator = &coordinator{
		readTree: func() (*topology.Tree, error) { return tree, nil },
		look:     a.look,
		get:      a.get,
		recorded: a.recorded,
		log:      slog.New(slog.DiscardHandler),
		tree:     tree,
		ledger:   newLedger(func() time.Time { return a.now }),
	}
	a.all = map[string][]Device{}
	for d := range tree.Devices() {
		device := Device{ID: d.Address.String(), Address: d.Address, NUMA: d.NUMA, Healthy: true}
		switch {
		case d.Class.IsGPU() && d.Vendor == 0x1002:
			a.all[gpus] = append(a.all[gpus], device)
		case d.IsVF():
			if excludeTopology {
				device.NUMA = topology.NUMANode{}
			}
			a.all[vfs] = append(a.all[vfs], device)
		}
	}
	a.free = map[string][]Device{gpus: slices.Clone(a.all[gpus]), vfs: slices.Clone(a.all[vfs])}
	a.coordinator.announce(gpus, GPU, Announcement{Devices: a.all[gpus]})
	a.coordinator.announce(vfs, VF, Announcement{Devices: a.all[vfs]})
	t.Cleanup(func() { checkLedger(t, a.coordinator.ledger) })
	return a
}

// keepCheckpoint makes the kubelet write its checkpoint where the coordinator reads it.
func (a *admission) keepCheckpoint() {
	a.kubeletDir = a.t.TempDir()
	if err := os.Mkdir(filepath.Join(a.kubeletDir, "device-plugins"), 0o750); err != nil {
		a.t.Fatal(err)
	}
	a.record()
}

// recorded reads the checkpoint that record has written.
func (a *admission) recorded() (kubelet.Checkpoint, error) {
	return kubelet.ReadCheckpoint(a.kubeletDir)
}

// record writes the kubelet's checkpoint, as the kubelet does when a container has all its devices.
func (a *admission) record() {
	type entry struct {
		PodUID, ContainerName, ResourceName string
		DeviceIDs                           map[int][]string
	}
	var file struct {
		Data struct{ PodDeviceEntries []entry }
	}
	for pod, containers := range a.recordedPods {
		for container, devices := range containers {
			for name, ids := range devices {
				file.Data.PodDeviceEntries = append(file.Data.PodDeviceEntries, entry{"uid-" + pod.Name, container, name, map[int][]string{-1: ids}})
			}
		}
	}
	content, err := json.Marshal(file)
	if err != nil {
		a.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(a.kubeletDir, "device-plugins", "kubelet_internal_checkpoint"), content, 0o600); err != nil {
		a.t.Fatal(err)
	}
}

func (a *admission) look(context.Context) (kubelet.View, error) {
	if a.away {
		return kubelet.View{}, fmt.Errorf("PodResources is away")
	}
	view := kubelet.View{Containers: map[kubelet.Container]kubelet.Devices{}}
	for _, pod := range a.order {
		view.Pods = append(view.Pods, pod)
		for name, devices := range a.pods[pod] {
			if name != "init" {
				view.Containers[kubelet.Container{Pod: pod, Name: name}] = devices
			}
		}
	}
	return view, nil
}

// get is look at one pod.
func (a *admission) get(ctx context.Context, pod kubelet.Pod) (kubelet.View, error) {
	all, err := a.look(ctx)
	view := kubelet.View{Containers: map[kubelet.Container]kubelet.Devices{}}
	for c, devices := range all.Containers {
		if c.Pod == pod {
			view.Pods, view.Containers[c] = []kubelet.Pod{pod}, devices
		}
	}
	return view, err
}

// add makes a pod known, as the kubelet does just before it admits it.
func (a *admission) add(name string) kubelet.Pod {
	pod := kubelet.Pod{Namespace: "team", Name: name}
	a.pods[pod] = map[string]kubelet.Devices{}
	a.order = append(a.order, pod)
	a.now = a.now.Add(followWindow)
	return pod
}

func (a *admission) remove(pod kubelet.Pod) {
	a.t.Logf("remove %v %v", pod, a.pods[pod])
	defer func() {
		for name, free := range a.free {
			a.free[name] = slices.CompactFunc(slices.SortedFunc(slices.Values(free), compareDevices), func(x, y Device) bool { return x == y })
		}
	}()
	for _, devices := range a.pods[pod] {
		for name, ids := range devices {
			for _, d := range a.all[name] {
				if slices.Contains(ids, d.ID) && !slices.Contains(a.free[name], d) {
					a.free[name] = append(a.free[name], d)
				}
			}
		}
	}
	delete(a.pods, pod)
	delete(a.recordedPods, pod)
	a.order = slices.DeleteFunc(a.order, func(p kubelet.Pod) bool { return p == pod })
}

// reuse makes the devices of the pod's init container available again, to its next container alone.
func (a *admission) reuse(pod kubelet.Pod) {
	for name, ids := range a.pods[pod]["init"] {
		for _, d := range a.all[name] {
			if slices.Contains(ids, d.ID) {
				a.free[name] = append(a.free[name], d)
			}
		}
	}
}

// holdsOnly reports whether devices are on these NUMA nodes: the kubelet wants all of the init container's on them.
func (a *admission) holdsOnly(nodes []int, devices kubelet.Devices) bool {
	for name, ids := range devices {
		for _, d := range a.all[name] {
			if n, known := d.NUMA.Number(); slices.Contains(ids, d.ID) && known && !slices.Contains(nodes, n) {
				return false
			}
		}
	}
	return true
}

// nodes predicts what the Topology Manager would say; false where it refuses.
func (a *admission) nodes(w wish) ([]int, bool) {
	var demands []Demand
	for name, count := range map[string]int{gpus: w.gpus, vfs: w.vfs} {
		demand := Demand{Count: count}
		for _, d := range a.all[name] {
			demand.All = append(demand.All, d.NUMA)
		}
		for _, d := range a.free[name] {
			demand.Free = append(demand.Free, d.NUMA)
		}
		if len(demand.Free) < count {
			return nil, false
		}
		if count > 0 {
			demands = append(demands, demand)
		}
	}
	return PredictNodes(demands)
}

// admit gives a container what it wishes, in random order of its resources. It reports whether the kubelet would, and
// fails the test if the pairs are not the best that there were.
func (a *admission) admit(pod kubelet.Pod, container string, w wish) bool {
	a.reuse(pod)
	nodes, ok := a.nodes(w)
	if !ok || !a.holdsOnly(nodes, a.pods[pod]["init"]) {
		return false
	}
	aligned := map[string][]Device{gpus: a.aligned(gpus, nodes), vfs: a.aligned(vfs, nodes)}
	best := a.best(aligned, w)
	a.pods[pod][container] = kubelet.Devices{}
	a.guessed = false
	order := []string{gpus, vfs}
	if a.random.IntN(2) == 1 {
		slices.Reverse(order)
	}
	for _, name := range order {
		if count := map[string]int{gpus: w.gpus, vfs: w.vfs}[name]; count > 0 {
			a.give(pod, container, name, aligned[name], a.pods[pod]["init"][name], count)
		}
	}
	if w.gpus+w.vfs > 0 && a.kubeletDir != "" {
		if a.recordedPods[pod] == nil {
			a.recordedPods[pod] = map[string]kubelet.Devices{}
		}
		a.recordedPods[pod][container] = a.pods[pod][container]
		a.record()
	}
	if container != "init" {
		delete(a.pods[pod], "init") // its devices are this container's now
	}
	if w.gpus > 0 && w.vfs > 0 {
		if got := a.levels(a.pods[pod][container]); got != best {
			a.t.Errorf("%v/%s %v in order %v on nodes %v: pairs %v, best %v", pod, container, w, order, nodes, got, best)
		} else if got := a.listed(a.pods[pod][container]); got != best && !a.guessed {
			a.t.Errorf("%v/%s %v in order %v on nodes %v: pairs as listed %v, best %v", pod, container, w, order, nodes, got, best)
		}
	}
	return true
}

func (a *admission) aligned(name string, nodes []int) []Device {
	return slices.DeleteFunc(slices.Clone(a.free[name]), func(d Device) bool {
		n, known := d.NUMA.Number()
		return known && !slices.Contains(nodes, n)
	})
}

// give is the kubelet's devicesToAllocate and Allocate.
func (a *admission) give(pod kubelet.Pod, container, name string, aligned []Device, must []string, count int) {
	a.random.Shuffle(len(aligned), func(i, j int) { aligned[i], aligned[j] = aligned[j], aligned[i] })
	available := slices.Clone(must)
	for _, d := range aligned {
		if !slices.Contains(must, d.ID) {
			available = append(available, d.ID)
		}
	}
	_, topologyKnown := a.all[name][0].NUMA.Number()
	ids := available[:count]
	if len(must) < count && (len(available) > count || !topologyKnown) {
		answer, why, err := a.coordinator.prefer(a.t.Context(), question{resource: name, available: available, mustInclude: must, size: count})
		if err != nil || len(answer) != count {
			a.t.Fatalf("prefer %d %s of %v: %v, %v", count, name, available, answer, err)
		}
		ids = answer
		a.t.Logf("%v/%s prefer %d %s: %v %s", pod, container, count, name, ids, why)
	} else {
		a.guessed = a.guessed || name == vfs && len(a.pods[pod][container][gpus]) == 0
		a.t.Logf("%v/%s skip %d %s: %v", pod, container, count, name, ids)
	}
	a.now = a.now.Add(followWindow / 4)
	listed, refusal := a.coordinator.allocated(a.t.Context(), name, ids)
	if !sameSet(listed, ids) {
		a.t.Fatalf("allocated %v, listed %v, refused %q", ids, listed, refusal)
	}
	ids = listed
	a.pods[pod][container][name] = ids
	a.free[name] = slices.DeleteFunc(a.free[name], func(d Device) bool { return slices.Contains(ids, d.ID) })
	a.now = a.now.Add(followWindow / 4)
}

type levels [topology.Levels]int

// levels counts the distances of the pairs that devices make.
func (a *admission) levels(devices kubelet.Devices) levels {
	half := func(name string) []placement.Half {
		h := placement.Half{Count: len(devices[name])}
		for _, d := range a.all[name] {
			if slices.Contains(devices[name], d.ID) {
				h.Held = append(h.Held, d.placed())
			}
		}
		return []placement.Half{h}
	}
	return a.choose(placement.Request{GPUs: half(gpus), VFs: half(vfs)})
}

// listed counts the distances of the pairs as the container lists its devices: the i-th GPU with the i-th VF.
func (a *admission) listed(devices kubelet.Devices) levels {
	var l levels
	for i := range devices[gpus] {
		gpu, vf := a.address(gpus, devices[gpus][i]), a.address(vfs, devices[vfs][i])
		l[a.coordinator.tree.Distance(gpu, vf).Level]++
	}
	return l
}

func (a *admission) address(name, id string) topology.Address {
	i := slices.IndexFunc(a.all[name], func(d Device) bool { return d.ID == id })
	return a.all[name][i].Address
}

// best counts the distances of the best pairs among free devices.
func (a *admission) best(aligned map[string][]Device, w wish) levels {
	half := func(name string, count int) []placement.Half {
		h := placement.Half{Count: count}
		for _, d := range aligned[name] {
			h.Free = append(h.Free, d.placed())
		}
		return []placement.Half{h}
	}
	return a.choose(placement.Request{GPUs: half(gpus, w.gpus), VFs: half(vfs, w.vfs)})
}

func (a *admission) choose(r placement.Request) levels {
	choice, err := placement.Choose(a.coordinator.tree, r)
	if err != nil {
		a.t.Fatal(err)
	}
	var l levels
	for _, p := range choice.Pairs {
		l[p.Distance.Level]++
	}
	return l
}

// checkLedger checks what must hold for a ledger at any time.
func checkLedger(t *testing.T, l *ledger) {
	t.Helper()
	for name, holders := range l.holders {
		for id, a := range holders {
			if _, ok := a.devices[name][id]; !ok {
				t.Errorf("%s %s has a holder that does not hold it", name, id)
			}
		}
	}
	for a := range l.allocations() {
		for name, ids := range a.devices {
			if len(ids) == 0 {
				t.Errorf("allocation of %s keeps an empty list of %s", a.ownerName(), name)
			}
			for id := range ids {
				if l.holders[name][id] != a {
					t.Errorf("%s %s is held by an allocation that is not its holder", name, id)
				}
			}
		}
	}
}

func TestEveryContainerGetsTheBestPairs(t *testing.T) {
	for _, setup := range []struct {
		machine         string
		vfsPerPF        int
		excludeTopology bool
	}{
		{"oci-mi300x-derived", 1, false},
		{"oci-mi300x-derived", 4, false},
		{"oci-mi300x-derived", 4, true},
		{"oci-mi300x-derived", 1, true},
		{"amd-mi300x-smc-thor2", 1, false},
		{"amd-mi250-16gcd-8nic", 2, false},
	} {
		t.Run(fmt.Sprintf("%s/%d/exclude=%v", setup.machine, setup.vfsPerPF, setup.excludeTopology), func(t *testing.T) {
			for seed := range uint64(10) {
				a := newAdmission(t, setup.machine, setup.vfsPerPF, setup.excludeTopology, seed)
				if seed%2 == 0 {
					a.keepCheckpoint()
				}
				a.mixedLoad(200)
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
		})
	}
}

// mixedLoad admits and removes pods at random: pairs, GPUs alone, VFs alone, neither, and pods of two containers.
func (a *admission) mixedLoad(steps int) {
	mix := []wish{{1, 1}, {2, 2}, {4, 4}, {1, 0}, {2, 0}, {0, 1}, {0, 2}, {0, 0}}
	for step := range steps {
		if len(a.order) > 0 && a.random.IntN(2) == 0 {
			a.remove(a.order[a.random.IntN(len(a.order))])
			continue
		}
		pod := a.add(fmt.Sprintf("pod-%d", step))
		first := mix[a.random.IntN(len(mix))]
		ok := true
		if first.gpus > 0 && first.gpus == first.vfs && a.random.IntN(4) == 0 {
			ok = a.admit(pod, "init", wish{1, 1})
		}
		ok = ok && a.admit(pod, "c0", first)
		if ok && a.random.IntN(4) == 0 && (a.kubeletDir != "" || (first.gpus > 0) == (first.vfs > 0)) {
			// Without the checkpoint a container with one half alone and the next one's other half look like one.
			ok = a.admit(pod, "c1", mix[a.random.IntN(len(mix))])
		}
		if !ok {
			a.remove(pod)
		}
		if a.t.Failed() {
			a.t.Fatalf("step %d", step)
		}
	}
}

// A pod that the kubelet refuses after its first half leaves devices behind and no trace in the checkpoint.
func TestAfterARefusedPod(t *testing.T) {
	for seed := range uint64(20) {
		a := newAdmission(t, "oci-mi300x-derived", 4, seed%2 == 0, seed)
		a.keepCheckpoint()
		refused := a.add("refused")
		a.pods[refused]["c0"] = kubelet.Devices{}
		a.give(refused, "c0", gpus, a.aligned(gpus, []int{0}), nil, 2)
		a.remove(refused)
		held := a.coordinator.ledger.newest()
		next := a.add("next")
		a.pods[next]["c0"] = kubelet.Devices{}
		a.give(next, "c0", vfs, a.aligned(vfs, []int{1}), nil, 1)
		if held.devices != nil && len(held.devices[gpus]) > 0 {
			t.Errorf("seed %d: the refused pod still holds %v", seed, held.devices)
		}
		if got := a.coordinator.ledger.newest(); len(got.devices[gpus]) > 0 {
			t.Errorf("seed %d: the next pod's VF was taken for the refused pod's other half", seed)
		}
	}
}
