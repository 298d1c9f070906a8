// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
	"github.com/tandem-k8s/tandem/test/history"
)

// Resources that pods request.
const (
	GPUs = "amd.com/gpu"
	VFs  = "nvidia.com/vf"
)

// Question is a GetPreferredAllocation.
type Question struct {
	Resource               string
	Available, MustInclude []string
	Size                   int
}

// Plugins implements the device plugins of the node.
type Plugins interface {
	// Prefer answers GetPreferredAllocation.
	Prefer(*Pod, *Container, Question) []string
	// Allocate answers Allocate. The result false means an error, which fails the pod.
	Allocate(pod *Pod, container *Container, resource string, ids []string) bool
}

// Trouble holds the probabilities of faults, from 0 to 1.
type Trouble struct {
	Fail   float64 // the kubelet fails a pod between two resources of a container
	Change float64 // a plugin's device list changes after an Allocate
	End    float64 // another pod ends during an admission
}

// Kubelet is a model of a kubelet. One goroutine drives the kubelet; Tell, List, Get and Update are safe for
// concurrent use with all methods.
type Kubelet struct {
	Devices map[string][]device.Device // healthy devices by resource
	None    bool                       // topologyManagerPolicy is none instead of restricted
	First   string                     // the resource that a container gets first; "" for a random order
	plugins                            // data of the plugins
	Trouble Trouble
	Now     func() time.Time
	History *history.Recorder

	// Open is the question or allocation in progress; plugins add facts with [history.Recorder.Edit].
	Open history.ID

	mu sync.Mutex // guards all state; released while a plugin answers

	dir     string
	random  *rand.Rand
	uids    int
	pods    []*Pod
	ending  []*Pod                     // ended pods that hold devices
	held    map[holder]kubelet.Devices // the kubelet's podDevices
	written map[holder]kubelet.Devices // devices in the checkpoint
	ready   bool                       // all pods are listed since the last start
	lives   int                        // number of restarts
	start   history.ID
}

// holder identifies a container with devices.
type holder struct{ uid, container string }

func (h holder) compare(other holder) int {
	return cmp.Or(cmp.Compare(h.uid, other.uid), cmp.Compare(h.container, other.container))
}

// New returns a kubelet with its checkpoint below a directory.
func New(dir string, devices map[string][]device.Device, seed uint64) (*Kubelet, error) {
	k := &Kubelet{
		Devices: devices, Now: time.Now, dir: dir, random: rand.New(rand.NewPCG(seed, 7)),
		held: map[holder]kubelet.Devices{}, ready: true, History: history.New(mostEvents, history.Steps()),
	}
	return k, k.write()
}

// Pods returns the pods that have not ended, in the order of their admission.
func (k *Kubelet) Pods() []*Pod {
	return slices.DeleteFunc(slices.Clone(k.pods), func(p *Pod) bool { return p.ended })
}

// Tell returns the kubelet's pods for a source of intent, and false until the kubelet is ready.
func (k *Kubelet) Tell() (pods []intent.Pod, ready bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.Pods() {
		pods = append(pods, p.intent())
	}
	return pods, k.ready
}

// List returns the answer of PodResources List and frees the devices of ended pods.
func (k *Kubelet) List() kubelet.View {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.collect()
	return k.view(func(*Pod) bool { return true })
}

// Get returns the answer of PodResources Get.
func (k *Kubelet) Get(pod kubelet.Pod) kubelet.View {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.view(func(p *Pod) bool { return p.Pod == pod })
}

func (k *Kubelet) view(of func(*Pod) bool) kubelet.View {
	view := kubelet.View{Containers: map[kubelet.Container]kubelet.Devices{}, Life: fmt.Sprint(k.lives)}
	for _, p := range k.Pods() {
		if !of(p) || !p.listed {
			continue
		}
		view.Pods = append(view.Pods, p.Pod)
		for _, c := range p.Containers {
			if c.Role != intent.Init {
				view.Containers[p.Of(c)] = clone(k.held[holder{p.UID, c.Name}])
			}
		}
	}
	return view
}

func clone(devices kubelet.Devices) kubelet.Devices {
	copied := kubelet.Devices{}
	for name, ids := range devices {
		copied[name] = slices.Clone(ids)
	}
	return copied
}

// Holders returns the true holder of each device of a resource.
func (k *Kubelet) Holders(resource string) map[string]*Pod {
	holders := map[string]*Pod{}
	for _, p := range k.Pods() {
		for _, c := range p.Containers {
			for _, id := range k.held[holder{p.UID, c.Name}][resource] {
				holders[id] = p
			}
		}
	}
	return holders
}

// Booked returns the devices of a resource that the kubelet considers allocated, including those of ended
// pods.
func (k *Kubelet) Booked(resource string) map[string]bool {
	booked := map[string]bool{}
	for _, devices := range k.held {
		for _, id := range devices[resource] {
			booked[id] = true
		}
	}
	return booked
}

// OfInit reports whether no app container or sidecar of a pod has the device, so that only an init container
// can have it.
func (k *Kubelet) OfInit(p *Pod, resource, id string) bool {
	for _, c := range p.Containers {
		if c.Role != intent.Init && slices.Contains(c.Devices[resource], id) {
			return false
		}
	}
	return true
}

// free returns the devices that the kubelet considers free.
func (k *Kubelet) free(resource string) []device.Device {
	taken := k.Booked(resource)
	return slices.DeleteFunc(slices.Clone(k.Devices[resource]), func(d device.Device) bool {
		return taken[d.ID]
	})
}

// collect frees the devices of ended pods (UpdateAllocatedDevices).
func (k *Kubelet) collect() {
	if !k.ready {
		return
	}
	active := map[string]bool{}
	for _, p := range k.Pods() {
		active[p.UID] = true
	}
	maps.DeleteFunc(k.held, func(h holder, _ kubelet.Devices) bool { return !active[h.uid] })
	k.released()
	k.pods = k.Pods()
}

// End ends a pod without a notification.
func (k *Kubelet) End(p *Pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.end(p)
}

func (k *Kubelet) end(p *Pod) {
	p.ended, p.release = true, k.History.Call(p.event(history.Release))
	k.ending = append(k.ending, p)
}

// Start starts each admitted pod with a probability of one half.
func (k *Kubelet) Start() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.pods {
		p.started = p.started || k.random.IntN(2) == 0
	}
}

// Restart restarts the kubelet from its checkpoint. [Kubelet.Return] lists its pods again, except failed
// pods.
func (k *Kubelet) Restart() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.History.Return(k.start, nil) // unless all pods have been listed
	k.start = k.History.Call(history.Event{Kind: history.Started, Text: history.Kubelet})
	clear(k.held)
	for of, devices := range k.written {
		k.held[of] = clone(devices)
	}
	k.released()
	k.pods, k.ready, k.lives = k.Pods(), false, k.lives+1
	for _, p := range k.pods {
		p.listed, p.started = false, true
	}
}

// Return makes a restarted kubelet list one more pod; after the last pod the kubelet is ready.
func (k *Kubelet) Return() {
	k.mu.Lock()
	defer k.mu.Unlock()
	i := slices.IndexFunc(k.pods, func(p *Pod) bool { return !p.listed })
	if i < 0 {
		k.ready = true
		k.History.Return(k.start, nil)
		return
	}
	k.pods[i].listed = true
}

// Ready reports whether all pods are listed since the kubelet's start.
func (k *Kubelet) Ready() bool { return k.ready }

var errRefused = errors.New("refused")

// Admit admits a pod. After an error the pod has failed, but its containers still have their devices.
func (k *Kubelet) Admit(p *Pod, plugins Plugins) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.uids++
	p.UID, p.created, p.listed = fmt.Sprint("uid-", k.uids), k.Now(), true
	p.reuse = map[string]map[string]bool{GPUs: {}, VFs: {}}
	k.pods = append(k.pods, p)
	k.History.Note(p.arrival())
	for _, c := range p.Containers {
		c.Devices = kubelet.Devices{}
		if err := k.admit(p, c, plugins); err != nil {
			verdict := p.event(history.Verdict)
			verdict.Container, verdict.Refusal, verdict.Own = c.Name, err.Error(), !errors.Is(err, errRefused)
			k.History.Note(verdict)
			k.end(p)
			return err
		}
	}
	k.History.Note(p.event(history.Verdict))
	return nil
}

// admit allocates the devices of a container.
func (k *Kubelet) admit(p *Pod, c *Container, plugins Plugins) error {
	if !k.None {
		k.collect()
	}
	nodes, err := k.nodes(p, c)
	if err != nil {
		return err
	}
	k.collect()
	k.History.Note(p.alignment(c, nodes))
	c.Choice = map[string][]string{}
	for name := range c.Requests {
		c.Choice[name] = k.aligned(name, nodes)
	}
	names := slices.Sorted(maps.Keys(c.Requests))
	k.order(names)
	for i, name := range names {
		if i > 0 && k.happens(k.Trouble.Fail) {
			return errors.New("failed between two resources")
		}
		if others := k.others(p); k.happens(k.Trouble.End) && len(others) > 0 {
			k.end(others[k.random.IntN(len(others))])
		}
		if err := k.allocate(p, c, name, nodes, plugins); err != nil {
			return err
		}
		if k.happens(k.Trouble.Change) {
			k.History.Note(history.Event{Kind: history.Fault, Text: "a plugin's list changes"})
			if err := k.write(); err != nil {
				return err
			}
		}
	}
	if len(names) == 0 {
		return nil
	}
	if err := k.write(); err != nil {
		return err
	}
	k.History.Note(p.confirmation(c))
	return nil
}

// others returns the pods that have not ended, except one.
func (k *Kubelet) others(one *Pod) []*Pod {
	return slices.DeleteFunc(k.Pods(), func(p *Pod) bool { return p == one })
}

func (k *Kubelet) happens(chance float64) bool { return k.random.Float64() < chance }

// nodes returns the NUMA nodes that the Topology Manager chooses; nil for policy none.
func (k *Kubelet) nodes(p *Pod, c *Container) ([]int, error) {
	if k.None {
		return nil, nil
	}
	var demands []hints.Demand
	for name, count := range c.Requests {
		demand := hints.Demand{Count: count}
		for _, d := range k.Devices[name] {
			demand.All.Add(d.NUMA)
			if p.reuse[name][d.ID] {
				demand.Reused.Add(d.NUMA)
				demand.Free.Add(d.NUMA)
			}
		}
		for _, d := range k.free(name) {
			demand.Free.Add(d.NUMA)
		}
		demands = append(demands, demand)
	}
	mask, admitted := hints.Restricted.Nodes(demands...)
	if !admitted {
		return nil, errors.New("TopologyAffinityError")
	}
	return mask.Numbers(), nil
}

// aligned returns the free devices on NUMA nodes, or all free devices if nodes is nil.
func (k *Kubelet) aligned(name string, nodes []int) []string {
	var ids []string
	for _, d := range k.free(name) {
		if n, known := d.NUMA.Number(); !known || nodes == nil || slices.Contains(nodes, n) {
			ids = append(ids, d.ID)
		}
	}
	return ids
}

// allocate allocates the requested devices of a resource (devicesToAllocate and Allocate).
func (k *Kubelet) allocate(p *Pod, c *Container, name string, nodes []int, plugins Plugins) error {
	count := c.Requests[name]
	var ids []string
	for _, id := range slices.Sorted(maps.Keys(p.reuse[name])) {
		if len(ids) < count {
			ids = append(ids, id)
		}
	}
	c.Reused = c.Reused || len(ids) > 0
	aligned := k.aligned(name, nodes)
	hinted := nodes != nil && slices.ContainsFunc(k.Devices[name], func(d device.Device) bool {
		_, known := d.NUMA.Number()
		return known
	})
	switch {
	case len(ids) == count:
		// all devices of init containers
	case len(ids)+len(aligned) < count:
		return fmt.Errorf("too few %s", name)
	case hinted && len(ids)+len(aligned) == count:
		ids = append(ids, aligned...)
	default:
		c.Asked = append(c.Asked, name)
		available := slices.Concat(ids, aligned)
		k.random.Shuffle(len(available), func(i, j int) {
			available[i], available[j] = available[j], available[i]
		})
		ids = k.ask(p, c, Question{Resource: name, Available: available, MustInclude: ids, Size: count}, plugins)
		if len(ids) != count {
			return fmt.Errorf("%d of %d %s preferred", len(ids), count, name)
		}
	}
	k.Open = k.History.Call(p.of(history.Allocation, c, name, ids))
	allocated := false
	k.unlocked(func() { allocated = plugins.Allocate(p, c, name, ids) })
	k.History.Return(k.Open, nil)
	if !allocated {
		return errRefused
	}
	c.Devices[name] = ids
	of := holder{p.UID, c.Name}
	if k.held[of] == nil {
		k.held[of] = kubelet.Devices{}
	}
	k.held[of][name] = ids
	k.keepResponse(of, name, c)
	for _, id := range ids {
		if c.Role == intent.Init {
			p.reuse[name][id] = true
		} else {
			delete(p.reuse[name], id)
		}
	}
	return nil
}
