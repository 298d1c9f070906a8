// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/test/history"
	"github.com/tandem-k8s/tandem/test/model/topologymanager"
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
	Failed  map[string][]device.Device // unhealthy devices by resource, which hints count too

	None     bool                    // topologyManagerPolicy is none, whatever Topology says
	Topology topologymanager.Manager // the Topology Manager; policy restricted by default
	ScopePod bool                    // topologyManagerScope is pod instead of container

	First   string // the resource that a container gets first; "" for a random order
	Chance  Chance // the choices that the kubelet leaves to chance; nil for random ones
	Trouble Trouble
	Now     func() time.Time
	History *history.Recorder

	// Open is the question or allocation in progress; plugins add facts with [history.Recorder.Edit].
	Open history.ID

	mu sync.Mutex // guards all state; released while a plugin answers

	dir        string
	random     *rand.Rand
	uids       int
	pods       []*Pod
	ending     []*Pod                       // ended pods that hold devices
	held       map[holder]kubelet.Devices   // the kubelet's podDevices
	written    map[holder]kubelet.Devices   // devices in the checkpoint
	responses  map[holder]map[string][]byte // answers to Allocate, by resource, in the checkpoint
	registered map[string][]string          // healthy devices by resource, from Update, in the checkpoint
	layout     func([]byte) []byte          // of the checkpoint; nil for the kubelet's own
	ready      bool                         // all pods are listed since the last start
	lives      int                          // number of restarts
	start      history.ID
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
		held: map[holder]kubelet.Devices{}, responses: map[holder]map[string][]byte{},
		registered: map[string][]string{}, ready: true, History: history.New(mostEvents, history.Steps()),
	}
	return k, k.write()
}

// Pods returns the pods that have not ended, in the order of their admission.
func (k *Kubelet) Pods() []*Pod {
	return slices.DeleteFunc(slices.Clone(k.pods), func(p *Pod) bool { return p.ended })
}

// Tell returns the kubelet's pods for a source of requests; until all are listed, those listed, and false.
func (k *Kubelet) Tell() (pods []intent.Pod, ready bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.Pods() {
		if p.listed {
			pods = append(pods, p.Describe())
		}
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
			if c.Role != Init {
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
