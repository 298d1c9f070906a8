// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/coordination/pairs"
	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/test/checkpoint"
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

// admission plays the kubelet towards a coordinator: it picks NUMA nodes, asks in random order, does not ask
// where there is no choice, and shows pods in PodResources as the kubelet does.
type admission struct {
	t            *testing.T
	random       *rand.Rand
	now          time.Time
	coordinator  *Coordinator
	pods         map[kubelet.Pod]map[string]kubelet.Devices // by container; "init" is not shown
	order        []kubelet.Pod
	away         bool // PodResources does not answer
	unlisted     bool // PodResources tells of one pod, and does not list all
	late         bool // PodResources does not answer now and then
	missed       bool // it did not all the time for the newest pod
	names        int  // names that pods share in mixedLoad; 0: each has its own
	free         map[string][]device.Device
	all          map[string][]device.Device
	recordedPods map[kubelet.Pod]map[string]kubelet.Devices // as pods, init containers kept
	kubeletDir   string                                     // "" if there is no checkpoint
	// resource names of VFs, one for each PF; none: one for all
	rails []string
	// what a source of requests tells; it does where source is set
	specs   []intent.Pod
	source  intent.Source
	crashes bool // the server dies now and then, and the other plugin takes over
	created int  // pods so far
	records int  // checkpoints so far
	uids    map[kubelet.Pod]string
	guessed bool // the container got its VFs first and without a question: their order can only be guessed
}

func newAdmission(t *testing.T, machine string, vfsPerPF int, excludeTopology bool, seed uint64) *admission {
	t.Helper()
	tree, err := machines.Tree(machine, vfsPerPF)
	if err != nil {
		t.Fatal(err)
	}
	a := &admission{
		t:            t,
		random:       rand.New(rand.NewPCG(seed, 1)),
		now:          time.Unix(1000, 0),
		pods:         map[kubelet.Pod]map[string]kubelet.Devices{},
		recordedPods: map[kubelet.Pod]map[string]kubelet.Devices{},
		uids:         map[kubelet.Pod]string{},
	}
	read := &sources{
		newest:   func() *topology.Tree { return tree },
		look:     a.look,
		get:      a.get,
		life:     func() string { return sameKubelet },
		recorded: a.recorded,
		granted:  noContainer,
		pods:     a.intent,
	}
	a.coordinator = &Coordinator{Config: read.with(Config{Log: slog.New(slog.DiscardHandler)})}
	a.coordinator.startAt(tree, func() time.Time { return a.now })
	a.all = map[string][]device.Device{}
	for d := range tree.Devices() {
		device := device.Device{ID: d.Address.String(), Address: d.Address, NUMA: d.NUMA, Healthy: true}
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
	a.freeAll()
	a.announce()
	t.Cleanup(func() {
		checkState(t, a.coordinator.current())
		a.coordinator = nil // the parent of a test keeps the test's cleanups, and all that these can reach
	})
	return a
}

// startAt makes a coordinator begin with an empty state.
func (c *Coordinator) startAt(tree *topology.Tree, now func() time.Time) *Coordinator {
	folder := pairs.NewFolder(system.Disk{}, "", slog.New(slog.DiscardHandler)) // of no file
	*c = *newCoordinator(c.Config, new(store[savedState]), folder, tree, now)
	return c
}

func (a *admission) freeAll() {
	a.free = map[string][]device.Device{}
	for name, devices := range a.all {
		a.free[name] = slices.Clone(devices)
	}
}

// announce has both plugins join.
func (a *admission) announce() {
	for name, devices := range a.all {
		kind := device.VF
		if name == gpus {
			kind = device.GPU
		}
		if err := a.coordinator.Announce(name, kind, device.Announcement{Devices: devices}); err != nil {
			a.t.Fatal(err)
		}
	}
}

// splitRails makes a resource of every PF's VFs.
func (a *admission) splitRails() {
	for _, d := range a.all[vfs] {
		device, _ := a.coordinator.current().tree.Device(d.Address)
		name := "rail.example/" + device.Function().String()
		a.all[name] = append(a.all[name], d)
		if !slices.Contains(a.rails, name) {
			a.rails = append(a.rails, name)
		}
	}
	delete(a.all, vfs)
	a.coordinator.startAt(a.coordinator.current().tree, a.coordinator.now)
	a.freeAll()
	a.announce()
}

// requests is a wish by resource name. With rails it is a VF of each of as many of them as it wants VFs.
func (a *admission) requests(w wish) map[string]int {
	requests := map[string]int{gpus: w.gpus}
	if len(a.rails) == 0 {
		requests[vfs] = w.vfs
	}
	for i := range min(w.vfs, len(a.rails)) {
		requests[a.rails[i]] = 1
	}
	maps.DeleteFunc(requests, func(_ string, count int) bool { return count == 0 })
	return requests
}

// intent is what a source tells of the node's pods.
func (a *admission) intent(context.Context) (intent.Answer, error) {
	if a.source == "" {
		return intent.Answer{}, errors.New("no source")
	}
	return intent.Answer{Source: a.source, Pods: a.specs}, nil
}

// container is one of a pod that is about to be admitted.
type container struct {
	name string
	wish wish
}

// tell makes a source of requests know a pod, as the kubelet's do just before its admission.
func (a *admission) tell(pod kubelet.Pod, containers ...container) {
	told := intent.Pod{Pod: pod, UID: a.uids[pod], Created: a.now.Truncate(time.Second)}
	for _, c := range containers {
		role := model.App
		if c.name == "init" {
			role = model.Init
		}
		told.Containers = append(told.Containers, intent.Container{
			Name: c.name, Role: role, Requests: a.requests(c.wish),
		})
	}
	for i := range a.specs { // the kubelet starts what it has admitted, but not at once
		a.specs[i].Started = a.specs[i].Started || a.random.IntN(2) == 0
	}
	a.specs = append(a.specs, told)
}

// keepCheckpoint makes the kubelet write its checkpoint where the coordinator reads it.
func (a *admission) keepCheckpoint() {
	a.kubeletDir = a.t.TempDir()
	a.record()
}

// recorded reads the checkpoint that record has written.
func (a *admission) recorded() (kubelet.Checkpoint, error) {
	return kubelet.ReadCheckpoint(a.kubeletDir)
}

// record writes the kubelet's checkpoint, as the kubelet does when a container has all its devices.
func (a *admission) record() {
	var all []checkpoint.Allocation
	for pod, containers := range a.recordedPods {
		for container, devices := range containers {
			for name, ids := range devices {
				all = append(all, checkpoint.Allocation{
					PodUID: a.uids[pod], Container: container, Resource: name, Devices: map[string][]string{"-1": ids},
				})
			}
		}
	}
	a.records++ // the kernel's clock is too coarse to tell two checkpoints of a fast test apart
	at := time.Unix(int64(a.records), 0)
	if err := errors.Join(checkpoint.Write(a.kubeletDir, all, nil),
		os.Chtimes(kubelet.CheckpointPath(a.kubeletDir), at, at)); err != nil {
		a.t.Fatal(err)
	}
}

func (a *admission) look(context.Context) (kubelet.View, error) {
	late := a.late && a.random.IntN(4) == 0
	a.missed = a.missed || late
	if a.away || a.unlisted || late {
		return kubelet.View{}, fmt.Errorf("PodResources is away")
	}
	return a.view(), nil
}

// sameKubelet identifies the kubelet, which does not restart.
const sameKubelet = "one"

func (a *admission) view() kubelet.View {
	view := kubelet.View{Containers: map[kubelet.Container]kubelet.Devices{}, Life: sameKubelet}
	for _, pod := range a.order {
		view.Pods = append(view.Pods, pod)
		for name, devices := range a.pods[pod] {
			if name != "init" {
				view.Containers[kubelet.Container{Pod: pod, Name: name}] = maps.Clone(devices)
			}
		}
	}
	return view
}

// get is look at one pod.
func (a *admission) get(_ context.Context, pod kubelet.Pod) (kubelet.View, error) {
	if a.away {
		return kubelet.View{}, fmt.Errorf("PodResources is away")
	}
	all := a.view()
	view := kubelet.View{Containers: map[kubelet.Container]kubelet.Devices{}, Life: sameKubelet}
	view.Pods = slices.DeleteFunc(all.Pods, func(p kubelet.Pod) bool { return p != pod })
	for c, devices := range all.Containers {
		if c.Pod == pod {
			view.Containers[c] = devices
		}
	}
	return view, nil
}

// add makes a pod known, as the kubelet does just before it admits it.
func (a *admission) add(name string) kubelet.Pod {
	pod := kubelet.Pod{Namespace: "team", Name: name}
	a.created++
	a.missed = false
	a.pods[pod], a.uids[pod] = map[string]kubelet.Devices{}, fmt.Sprint("uid-", a.created)
	a.order = append(a.order, pod)
	a.now = a.now.Add(FollowWindow)
	return pod
}

func (a *admission) remove(pod kubelet.Pod) {
	a.t.Logf("remove %v %v", pod, a.pods[pod])
	defer func() {
		for name, free := range a.free {
			a.free[name] = slices.CompactFunc(slices.SortedFunc(slices.Values(free), device.Compare),
				func(x, y device.Device) bool { return x == y })
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
	a.specs = slices.DeleteFunc(a.specs, func(p intent.Pod) bool { return p.Pod.Name == pod.Name })
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

// nodes predicts what the Topology Manager would say; false where it refuses.
func (a *admission) nodes(w wish, reused kubelet.Devices) ([]int, bool) {
	var demands []model.Demand
	for name, count := range a.requests(w) {
		demand := model.Demand{Count: count}
		for _, d := range a.all[name] {
			demand.All.Add(d.NUMA)
			if slices.Contains(reused[name], d.ID) {
				demand.Reused.Add(d.NUMA)
			}
		}
		for _, d := range a.free[name] {
			demand.Free.Add(d.NUMA)
		}
		if len(a.free[name]) < count {
			return nil, false
		}
		if count > 0 {
			demands = append(demands, demand)
		}
	}
	nodes, admitted := model.Restricted.Nodes(demands...)
	return nodes.Numbers(), admitted
}

// admit gives a container what it wishes, in random order of its resources. It reports whether the kubelet
// would, and fails the test if the pairs are not the best that there were.
func (a *admission) admit(pod kubelet.Pod, container string, w wish) bool {
	a.reuse(pod)
	nodes, ok := a.nodes(w, a.pods[pod]["init"])
	if !ok {
		return false
	}
	aligned := map[string][]device.Device{}
	for name := range a.all {
		aligned[name] = a.aligned(name, nodes)
	}
	best, left := a.best(aligned, w)
	a.pods[pod][container] = kubelet.Devices{}
	a.guessed = false
	requests := a.requests(w)
	order := slices.Sorted(maps.Keys(requests))
	a.random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	for _, name := range order {
		a.give(pod, container, name, aligned[name], a.pods[pod]["init"][name], requests[name])
	}
	if w.gpus+w.vfs > 0 && a.kubeletDir != "" {
		if a.recordedPods[pod] == nil {
			a.recordedPods[pod] = map[string]kubelet.Devices{}
		}
		a.recordedPods[pod][container] = a.pods[pod][container]
		a.record()
	}
	if _, inherits := a.pods[pod]["init"]; a.source != "" && container != "init" && !inherits {
		if got := a.left(); got != left {
			a.t.Errorf("%v/%s %v in order %v on nodes %v: leaves %d pairs, best %d",
				pod, container, w, order, nodes, got, left)
		}
	}
	if container != "init" {
		delete(a.pods[pod], "init") // its devices are this container's now
	}
	if w.gpus > 0 && w.vfs > 0 && !a.missed { // else its pairs can be any
		if got := a.levels(a.pods[pod][container]); got != best {
			a.t.Errorf("%v/%s %v in order %v on nodes %v: pairs %v, best %v",
				pod, container, w, order, nodes, got, best)
		} else if len(a.rails) > 0 || w.gpus != w.vfs {
			return true // there are several lists, or none that is read side by side
		} else if got := a.listed(a.pods[pod][container]); got != best && !a.guessed {
			a.t.Errorf("%v/%s %v in order %v on nodes %v: pairs as listed %v, best %v",
				pod, container, w, order, nodes, got, best)
		}
	}
	return true
}

// mustAdmit gives a container what it wishes, and ends the test if the kubelet would not.
func (a *admission) mustAdmit(pod kubelet.Pod, container string, w wish) {
	a.t.Helper()
	if !a.admit(pod, container, w) {
		a.t.Fatalf("%v/%s is not admitted", pod, container)
	}
}

func (a *admission) aligned(name string, nodes []int) []device.Device {
	return slices.DeleteFunc(slices.Clone(a.free[name]), func(d device.Device) bool {
		n, known := d.NUMA.Number()
		return known && !slices.Contains(nodes, n)
	})
}

// give is the kubelet's devicesToAllocate and Allocate.
func (a *admission) give(
	pod kubelet.Pod, container, name string, aligned []device.Device, must []string, count int,
) {
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
		var why string
		ids, why = a.prefer(name, available, must, count)
		a.t.Logf("%v/%s prefer %d %s: %v %s", pod, container, count, name, ids, why)
	} else {
		// then a plan for a pod that wanted no GPUs can pass for one of this pod's
		alone := a.kubeletDir == "" && a.source == ""
		a.guessed = a.guessed || kindOf(name) == device.VF && (alone || len(a.pods[pod][container][gpus]) == 0)
		a.t.Logf("%v/%s skip %d %s: %v", pod, container, count, name, ids)
	}
	a.now = a.now.Add(FollowWindow / 4)
	a.maybeCrash()
	listed, refusal := a.allocated(name, ids)
	if !device.SameSet(listed, ids) {
		a.t.Fatalf("allocated %v, listed %v, refused %q", ids, listed, refusal)
	}
	a.maybeCrash()
	ids = listed
	a.pods[pod][container][name] = ids
	a.free[name] = slices.DeleteFunc(a.free[name], func(d device.Device) bool {
		return slices.Contains(ids, d.ID)
	})
	a.now = a.now.Add(FollowWindow / 4)
}

type levels [topology.Levels]int

// levels counts the distances of the pairs that devices make.
func (a *admission) levels(devices kubelet.Devices) levels {
	var r placement.Request
	for name, ids := range devices {
		h := placement.Half{Count: len(ids)}
		for _, d := range a.all[name] {
			if slices.Contains(ids, d.ID) {
				h.Held = append(h.Held, d.Placed())
			}
		}
		kindOf(name).AddTo(&r, h)
	}
	return levelsOf(a.choose(r))
}

func kindOf(name string) device.Kind {
	if name == gpus {
		return device.GPU
	}
	return device.VF
}

// listed counts the distances of the pairs as the container lists its devices: the i-th GPU with the i-th VF.
func (a *admission) listed(devices kubelet.Devices) levels {
	var l levels
	for i := range devices[gpus] {
		gpu, vf := a.address(gpus, devices[gpus][i]), a.address(vfs, devices[vfs][i])
		l[a.coordinator.current().tree.Distance(gpu, vf).Level]++
	}
	return l
}

func (a *admission) address(name, id string) topology.Address {
	i := slices.IndexFunc(a.all[name], func(d device.Device) bool { return d.ID == id })
	return a.all[name][i].Address
}

// best counts the distances of the best pairs among free devices, and the pairs that the best choice leaves.
func (a *admission) best(aligned map[string][]device.Device, w wish) (levels, int) {
	var r placement.Request
	requests := a.requests(w)
	for name, count := range requests {
		h := placement.Half{Count: count}
		for _, d := range aligned[name] {
			h.Free = append(h.Free, d.Placed())
		}
		kindOf(name).AddTo(&r, h)
	}
	for name, devices := range a.all {
		spare, taken := &r.Spare.VFs, &r.Taken.VFs
		if name == gpus {
			spare, taken = &r.Spare.GPUs, &r.Taken.GPUs
		}
		for _, d := range devices {
			if slices.Contains(a.free[name], d) {
				*spare = append(*spare, d.Placed())
			} else {
				*taken = append(*taken, d.Placed())
			}
		}
	}
	choice := a.choose(r)
	return levelsOf(choice), choice.Left
}

// left counts the same-switch pairs that can be made of what is free.
func (a *admission) left() int {
	var r placement.Request
	for name, free := range a.free {
		for _, d := range free {
			if name == gpus {
				r.Spare.GPUs = append(r.Spare.GPUs, d.Placed())
			} else {
				r.Spare.VFs = append(r.Spare.VFs, d.Placed())
			}
		}
	}
	return a.choose(r).Left
}

func (a *admission) choose(r placement.Request) placement.Choice {
	choice, err := placement.Choose(a.coordinator.current().tree, r)
	if err != nil {
		a.t.Fatal(err)
	}
	return choice
}

func levelsOf(choice placement.Choice) levels {
	var l levels
	for _, p := range choice.Pairs {
		l[p.Distance.Level]++
	}
	return l
}

// heldOf lists the devices of a resource that somebody holds, as far as the last question found.
func (c *Coordinator) heldOf(name string) (held []string) {
	for _, h := range c.current().found {
		held = append(held, h.Devices[name]...)
	}
	slices.Sort(held)
	return slices.Compact(held)
}

// holderOf names who holds a device, "" for nobody.
func (c *Coordinator) holderOf(name, id string) string {
	if h := c.current().books().holders.Of(name, id); h != nil {
		return ownerName(h)
	}
	return ""
}

// checkState checks what must hold for a state at any time: what is remembered is bounded.
func checkState(t *testing.T, s *state) {
	t.Helper()
	if len(s.allocates) > maxAllocates || len(s.resources) > device.MaxResources {
		t.Errorf("%d Allocates of %d resources", len(s.allocates), len(s.resources))
	}
}

// noContainer is a kubelet that never gave devices to anybody.
func noContainer() ([]kubelet.Granted, error) { return nil, fs.ErrNotExist }
