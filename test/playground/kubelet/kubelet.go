// SPDX-License-Identifier: Apache-2.0

// Package kubelet is a kubelet for device plugins without a cluster: it registers plugins at the socket of
// the device plugin API, admits pods by the model in coordination/kubelet/devicemanager with calls of the
// plugins, and serves what a kubelet tells of them: PodResources, the Pods API and the device checkpoint. It
// starts no container.
//
// Differences from a kubelet: a pod has one container, whose resources are allocated in the order of the
// request, not at random; where a plugin has no preference, the lowest devices are allocated; the limits of
// the calls are absent.
package kubelet

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	pods "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
)

// Kubelet is a running kubelet. It is safe for concurrent use.
type Kubelet struct {
	v1beta1.UnimplementedRegistrationServer
	pods.UnimplementedPodsServer

	dir  string
	rule model.Rule
	serving
	streams sync.WaitGroup // of the plugins' device lists

	admitting sync.Mutex // one pod at a time

	mu        sync.Mutex // guards all below; not held during calls of plugins
	resources map[string]*announced
	pods      []*Pod // that have not ended, in the order of their admission
	ended     []*Pod // that hold devices until the next admission or List
	rejected  []*Pod // until a pod of the name is admitted or deleted
	uids      int
	used      map[string]bool // names of all pods, also of ended ones
	problem   error           // of the last checkpoint written for a device list
	changed   chan struct{}   // closed at the next change of a device list
}

// announced are the devices of a resource, by the last list of its plugin.
type announced struct {
	plugin  *Plugin
	devices []*v1beta1.Device
}

// Start starts a kubelet with its files below a directory. The rule is that of its Topology Manager, with
// scope container. Stop ends the kubelet.
func Start(dir string, rule model.Rule) (*Kubelet, error) {
	k := &Kubelet{dir: dir, rule: rule, resources: map[string]*announced{}, used: map[string]bool{},
		changed: make(chan struct{})}
	if err := k.write(); err != nil {
		return nil, err
	}
	return k, k.serve()
}

// Stop ends the servers and the connections to the plugins. The checkpoint stays.
func (k *Kubelet) Stop() {
	k.stop()
	k.mu.Lock()
	for _, r := range k.resources {
		r.plugin.Close()
	}
	clear(k.resources)
	k.mu.Unlock()
	k.streams.Wait()
}

// Restart ends the kubelet and starts it again: pods keep their devices, and plugins have to register again.
func (k *Kubelet) Restart() error {
	k.admitting.Lock()
	defer k.admitting.Unlock()
	k.Stop()
	return k.serve()
}

// Register implements the Registration service. Like the kubelet, Register calls the plugin before it
// returns.
func (k *Kubelet) Register(ctx context.Context, r *v1beta1.RegisterRequest) (*v1beta1.Empty, error) {
	p, err := Connect(ctx, filepath.Join(k.dir, pluginsFolder, r.GetEndpoint()), r)
	if err != nil {
		return nil, err
	}
	name := r.GetResourceName()
	k.mu.Lock()
	defer k.mu.Unlock()
	of := k.resources[name]
	if of == nil {
		of = &announced{}
		k.resources[name] = of
	} else {
		of.plugin.Close()
	}
	of.plugin = p
	k.streams.Go(func() { k.follow(name, p) })
	return &v1beta1.Empty{}, nil
}

// follow takes the device lists of a plugin. At the end of its stream the devices become unhealthy.
func (k *Kubelet) follow(name string, p *Plugin) {
	for devices := range p.Lists {
		k.update(name, p, func([]*v1beta1.Device) []*v1beta1.Device { return devices })
	}
	k.update(name, p, failed)
}

func failed(devices []*v1beta1.Device) (list []*v1beta1.Device) {
	for _, d := range devices {
		d = proto.CloneOf(d)
		d.Health = v1beta1.Unhealthy
		list = append(list, d)
	}
	return list
}

// update changes the devices of a plugin, unless another plugin has replaced the plugin.
func (k *Kubelet) update(name string, p *Plugin, change func([]*v1beta1.Device) []*v1beta1.Device) {
	k.mu.Lock()
	defer k.mu.Unlock()
	of := k.resources[name]
	if of == nil || of.plugin != p {
		return
	}
	of.devices = change(of.devices)
	k.problem = k.writeLocked()
	close(k.changed)
	k.changed = make(chan struct{})
}

// Await waits until each of the resources has a healthy device, or ctx is done.
func (k *Kubelet) Await(ctx context.Context, resources ...string) error {
	return k.await(ctx, resources, func(healthy int) bool { return healthy > 0 })
}

// AwaitLoss waits until none of the resources has a healthy device, or ctx is done.
func (k *Kubelet) AwaitLoss(ctx context.Context, resources ...string) error {
	return k.await(ctx, resources, func(healthy int) bool { return healthy == 0 })
}

// await waits until the number of healthy devices of each resource is right.
func (k *Kubelet) await(ctx context.Context, resources []string, right func(healthy int) bool) error {
	for {
		wrong, changed, err := k.wrong(resources, right)
		if err != nil || len(wrong) == 0 {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for the kubelet's devices of %s: %w", strings.Join(wrong, ", "),
				context.Cause(ctx))
		}
	}
}

// wrong returns the resources with a wrong number of healthy devices, and a channel that is closed at the
// next change.
func (k *Kubelet) wrong(
	resources []string, right func(healthy int) bool,
) (wrong []string, changed <-chan struct{}, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, name := range resources {
		if !right(len(k.healthy(name))) {
			wrong = append(wrong, name)
		}
	}
	return wrong, k.changed, k.problem
}

// Healthy returns the IDs of the healthy devices of a resource.
func (k *Kubelet) Healthy(name string) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.healthy(name)
}

// healthy returns the IDs of the healthy devices of a resource, in the order of the list.
func (k *Kubelet) healthy(name string) (ids []string) {
	if of := k.resources[name]; of != nil {
		for _, d := range of.devices {
			if d.GetHealth() == v1beta1.Healthy {
				ids = append(ids, d.GetID())
			}
		}
	}
	return ids
}

// Pods returns the names of the pods, in the order of their admission.
func (k *Kubelet) Pods() (names []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.pods {
		names = append(names, p.Name)
	}
	return names
}

// Gone is the UID for a name whose last pod has ended.
const Gone = "none"

// UID returns the UID of the pod of a name, running or rejected, or Gone; false if no pod has had the name.
func (k *Kubelet) UID(name string) (uid string, known bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range slices.Concat(k.pods, k.rejected) {
		if p.Name == name {
			return p.uid, true
		}
	}
	return Gone, k.used[name]
}

// Grant returns what the container of a pod has been given; false without such a pod.
func (k *Kubelet) Grant(name string) (Grant, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	i := k.index(name)
	if i < 0 {
		return Grant{}, false
	}
	return k.pods[i].grant(), true
}

func (k *Kubelet) index(name string) int {
	return slices.IndexFunc(k.pods, func(p *Pod) bool { return p.Name == name })
}

// ErrNoPod means that no pod has the name.
var ErrNoPod = errors.New("no such pod")

// Delete ends a pod. As in a kubelet, its devices are free from the next admission or List on.
func (k *Kubelet) Delete(name string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	i := k.index(name)
	switch {
	case i >= 0:
		k.end(k.pods[i])
	case !k.forget(name):
		return fmt.Errorf("delete pod %q: %w", name, ErrNoPod)
	}
	return nil
}

// forget forgets the rejected pod of a name, and reports whether there was one.
func (k *Kubelet) forget(name string) bool {
	all := len(k.rejected)
	k.rejected = slices.DeleteFunc(k.rejected, func(p *Pod) bool { return p.Name == name })
	return len(k.rejected) < all
}

func (k *Kubelet) end(p *Pod) {
	k.pods = slices.DeleteFunc(k.pods, func(other *Pod) bool { return other == p })
	k.ended = append(k.ended, p)
}
