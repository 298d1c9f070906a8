// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet/devicemanager"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// Node is the devices of a node, with the state of each device.
type Node struct {
	model   *devicemanager.Devices
	kubelet model.TopologyManager
	healthy devicemanager.Set
	held    sets // by pod, as namespace/pod or [unknownHolder]
	on      sets // by switch
}

// sets are the devices of each of a kind of holders or places.
type sets map[string]devicemanager.Set

// NewNode returns the node with these resources, as in a status, under the settings of its kubelet.
func NewNode(resources []Resource, kubelet model.TopologyManager) *Node {
	var announced []model.Resource
	var healthy []string
	held, on := map[string][]string{}, map[string][]string{}
	for _, r := range resources {
		a := model.Resource{Name: r.Name, Kind: model.GPU}
		if r.Kind == string(device.VF) {
			a.Kind = model.VF
		}
		for _, d := range r.Devices {
			id := r.Name + " " + d.ID // two resources may share an ID
			a.Devices = append(a.Devices, model.Device{
				Device: placement.Device{ID: id}, NUMA: d.NUMA,
			})
			if r.Connected && d.IsHealthy() {
				healthy = append(healthy, id)
			}
			on[d.Switch] = append(on[d.Switch], id)
			if pod := podOf(d.Holder()); pod != "" {
				held[pod] = append(held[pod], id)
			}
		}
		announced = append(announced, a)
	}
	n := &Node{
		model: devicemanager.NewDevices(announced), kubelet: kubelet, held: sets{}, on: sets{},
	}
	n.healthy = n.model.Select(healthy)
	for pod, ids := range held {
		n.held[pod] = n.model.Select(ids)
	}
	for name, ids := range on {
		n.on[name] = n.model.Select(ids)
	}
	return n
}

// podOf returns the pod of a container, both as in a status.
func podOf(container string) string {
	if at := strings.LastIndex(container, "/"); at >= 0 {
		return container[:at]
	}
	return container
}

// takenBut returns the devices of all pods but some.
func (n *Node) takenBut(but ...string) devicemanager.Set {
	taken := n.model.NewSet()
	for pod, devices := range n.held {
		if !slices.Contains(but, pod) {
			taken.Include(devices)
		}
	}
	return taken
}

// freeDevices returns the devices that the kubelet can allocate.
func (n *Node) freeDevices() devicemanager.Set { return n.healthy.Difference(n.takenBut()) }

// canAdmit reports whether the kubelet admits a pod while some devices are taken.
func (n *Node) canAdmit(taken devicemanager.Set, pod ...model.Container) bool {
	a := n.newAdmission(taken, pod)
	return a.Admit() == nil
}

// AdmitsEmpty reports whether the node admits a pod if all healthy devices are free. CPUs returns the hints
// of the kubelet's CPU manager for a number of exclusive CPUs.
func (n *Node) AdmitsEmpty(pod []intent.Container, cpus func(count int) model.Hints) bool {
	a := n.newAdmission(n.model.NewSet(), n.modelContainers(pod))
	a.Managed, a.Others = true, withCPUs{anyDevices{n}, pod, cpus}
	return a.Admit() == nil
}

func (n *Node) newAdmission(taken devicemanager.Set, pod []model.Container) devicemanager.Admission {
	return devicemanager.Admission{
		Node: n.model, Kubelet: n.kubelet, Containers: pod, Others: anyDevices{n},
		Healthy: n.healthy, Taken: taken.Clone(), Reusable: n.model.NewSet(),
	}
}

// modelContainers returns the containers of a pod with their requests for devices of the node.
func (n *Node) modelContainers(pod []intent.Container) []model.Container {
	containers := make([]model.Container, len(pod))
	for i, c := range pod {
		containers[i].Role = c.Role
		for resource := range n.model.Resources {
			if count := c.Requests[n.model.Resources[resource].Name]; count > 0 {
				containers[i].Requests = append(containers[i].Requests, model.Request{Resource: resource, Count: count})
			}
		}
	}
	return containers
}

// comparedRequests returns the requests that the Topology Manager compares with the node, one after the
// other: of each container or, under scope pod, of the pod.
func (n *Node) comparedRequests(pod []model.Container) (all []model.Requests) {
	if n.kubelet.ScopePod {
		return []model.Requests{model.Total(pod)}
	}
	for _, c := range pod {
		all = append(all, c.Requests)
	}
	return all
}

// anyDevices are plugins that choose the lowest devices. CPU and memory managers do not take part.
type anyDevices struct{ *Node }

func (anyDevices) Hints(int) []model.Hints { return nil }

func (a anyDevices) Prefer(int, devicemanager.Question) devicemanager.Set { return a.model.NewSet() }

func (anyDevices) Pick(of devicemanager.Set, count int) devicemanager.Set { return of.Lowest(count) }

func (anyDevices) Allocate(int, model.Hint, devicemanager.Set) error { return nil }

// withCPUs adds the hints of the CPU manager. The containers take no CPUs from each other.
type withCPUs struct {
	anyDevices
	pod  []intent.Container
	cpus func(count int) model.Hints
}

func (w withCPUs) Hints(container int) []model.Hints {
	of := w.pod
	if container >= 0 {
		of = of[container : container+1]
	}
	var all []model.Container
	for _, c := range of {
		cpus := model.Requests{{Count: c.CPUs}}
		all = append(all, model.Container{Role: c.Role, Requests: cpus})
	}
	return []model.Hints{w.cpus(model.Total(all)[0].Count)}
}
