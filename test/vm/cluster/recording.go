// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/test/history"
	"github.com/tandem-k8s/tandem/topology"
)

// mostEvents bounds the history of a node: some ten events of each pod.
const mostEvents = 100_000

// recording follows a node's pods for package history, from outside: arrivals, verdicts, the devices that
// containers see, the kubelet's records, Tandem's view, and ends. The kubelet's questions are not visible: no
// log has their offers. Devices have their PCI addresses as IDs, and all VFs belong to VFResource, so that
// one owner counts across plugins and modes of the node.
type recording struct {
	*history.Recorder
	gpus string // resource

	mu      sync.Mutex
	uids    map[string]string     // of pods, by name
	ends    map[string]history.ID // releases that are not over, by name
	devices map[string][]string   // seen so far, by resource
}

// record starts a history.
func (n *Node) record() {
	n.recording = &recording{
		Recorder: history.New(mostEvents, history.Steps()), gpus: n.Shape.Resource,
		uids: map[string]string{}, ends: map[string]history.ID{}, devices: map[string][]string{},
	}
}

// Judge judges the history since the last call, by the promises of package history.
func (n *Node) Judge() (history.History, error) {
	r := n.recording
	n.record()
	m := history.Machine{
		Devices: map[string][]device.Device{},
		Kinds:   map[string]device.Kind{r.gpus: device.GPU, VFResource: device.VF},
	}
	for resource, addresses := range r.devices {
		for _, address := range addresses {
			a, err := topology.ParseAddress(address)
			if err != nil {
				return history.History{}, fmt.Errorf("judge history: %w", err)
			}
			m.Devices[resource] = append(m.Devices[resource], device.Device{ID: address, Address: a})
		}
	}
	h := r.History()
	return h, history.Check(h, m, history.Rules{})
}

// Storm records that a fault, or a change of the node's plugins, begins.
func (n *Node) Storm(what string) {
	n.recording.Note(history.Event{Kind: history.Fault, Text: what})
	n.recording.Note(history.Event{Kind: history.Storm, Exempt: history.InStorms})
}

// Restarted records that daemons have started again, and have registered with the kubelet.
func (n *Node) Restarted(daemons ...string) {
	for _, daemon := range daemons {
		n.recording.Note(history.Event{Kind: history.Started, Text: daemon})
	}
}

// Calm records that all faults have ended, and Tandem has read all sources since.
func (n *Node) Calm() { n.recording.Note(history.Event{Kind: history.Calm}) }

func (r *recording) event(kind history.Kind, pod, container string) history.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return history.Event{Kind: kind, Pod: "default/" + pod, UID: r.uids[pod], Container: container}
}

// arrives records that a pod exists.
func (r *recording) arrives(p Pod, uid string) {
	r.mu.Lock()
	r.uids[p.Name] = uid
	r.mu.Unlock()
	e := r.event(history.Arrival, p.Name, "")
	e.Spec = &history.Spec{}
	for i, a := range p.Asks {
		e.Spec.Containers = append(e.Spec.Containers, history.Container{
			Name: containerName(i), Init: a.Init, Requests: map[string]int{r.gpus: a.GPUs, VFResource: a.VFs},
		})
	}
	r.Note(e)
}

// seen records the kubelet's verdict on a pod, and the devices that the containers of an admitted pod see.
func (r *recording) seen(pod string, o *Outcome) {
	e := r.event(history.Verdict, pod, "")
	if o.Reason != "" {
		e.Refusal, e.Own = o.Reason+": "+o.Message, o.Reason == "TopologyAffinityError"
	}
	r.Note(e)
	for i, v := range o.Containers {
		held := map[string][]string{}
		for _, folder := range v.GPUs {
			held[r.gpus] = append(held[r.gpus], path.Base(folder))
		}
		for _, folder := range v.VFs {
			held[VFResource] = append(held[VFResource], path.Base(folder))
		}
		r.confirm(pod, containerName(i), held)
	}
}

// confirm records that a container has devices.
func (r *recording) confirm(pod, container string, held map[string][]string) {
	e := r.event(history.Confirmation, pod, container)
	if e.Held = held; e.UID != "" && len(held) > 0 {
		r.Note(e)
	}
	r.know(held)
}

// know adds devices to those of the machine.
func (r *recording) know(found map[string][]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for resource, addresses := range found {
		for _, address := range addresses {
			if !slices.Contains(r.devices[resource], address) {
				r.devices[resource] = append(r.devices[resource], address)
			}
		}
	}
}

// ending records that pods end: their devices can be free from now on.
func (r *recording) ending(pods ...string) {
	for _, pod := range pods {
		e := r.event(history.Release, pod, "")
		r.mu.Lock()
		if _, known := r.ends[pod]; !known && e.UID != "" {
			r.ends[pod] = r.Call(e)
		}
		r.mu.Unlock()
	}
}

// gone records that pods have ended.
func (r *recording) gone(pods ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, pod := range pods {
		r.Return(r.ends[pod], nil)
		delete(r.ends, pod)
		delete(r.uids, pod)
	}
}

// rebooting records that all pods can end: at its start a kubelet rejects pods whose plugin has not
// registered yet.
func (r *recording) rebooting() {
	r.mu.Lock()
	var pods []string
	for pod := range r.uids {
		pods = append(pods, pod)
	}
	r.mu.Unlock()
	slices.Sort(pods)
	r.ending(pods...)
}

// viewLedger returns Tandem's view, and records the free devices.
func (n *Node) viewLedger(ctx context.Context) (*ledger, error) {
	view := n.recording.viewing()
	l, err := n.fromLedger(ctx)
	if err == nil {
		n.recording.view(view, l)
	}
	return l, err
}

// viewing records that a view begins. Tandem learns of a pod's end from the kubelet's next call: the devices
// may still be held in the view.
func (r *recording) viewing() history.ID {
	return r.Call(history.Event{Kind: history.View, Exempt: []history.Promise{history.Stuck}})
}

// view records the devices that are free in a view.
func (r *recording) view(begun history.ID, l *ledger) {
	free := map[string][]string{}
	for name, address := range l.addresses {
		if address == "" {
			continue
		}
		resource := r.resourceOf(name, l)
		r.know(map[string][]string{resource: {address}})
		if _, held := l.holdings[name]; !held {
			free[resource] = append(free[resource], address)
		}
	}
	r.Return(begun, func(e *history.Event) { e.Free = free })
}

// resourceOf returns the resource in the history of a device "resource id".
func (r *recording) resourceOf(name string, l *ledger) string {
	resource, _, _ := strings.Cut(name, " ")
	if l.kinds[resource] == string(device.GPU) {
		return r.gpus
	}
	return VFResource
}

// confirmAll records the kubelet's records of all containers, with the addresses in Tandem's view.
func (r *recording) confirmAll(kubelet holdings, l *ledger) {
	held := map[string]map[string][]string{} // by container
	for name, owner := range kubelet {
		if held[owner] == nil {
			held[owner] = map[string][]string{}
		}
		resource := r.resourceOf(name, l)
		held[owner][resource] = append(held[owner][resource], l.addresses[name])
	}
	for _, owner := range slices.Sorted(maps.Keys(held)) {
		if parts := strings.Split(owner, "/"); len(parts) == 3 && parts[0] == "default" {
			r.confirm(parts[1], parts[2], held[owner])
		}
	}
}

func containerName(i int) string { return fmt.Sprintf("c%d", i) }
