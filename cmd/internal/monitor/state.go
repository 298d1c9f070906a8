// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/degraded"
	"github.com/tandem-k8s/tandem/coordination/device"
)

// The metrics of the node's state, read at each scrape.
var (
	roleDesc = gauge("coordination_role",
		"1 for the plugin's current role in the coordination: server, client, foreign (incompatible protocol of "+
			"the server) or alone.", "role")
	connectedDesc = gauge("resource_connected",
		"1 while the plugin of a resource is connected to the coordination, otherwise 0. "+serverOnly,
		"resource")
	devicesDesc = gauge("devices",
		"Devices by state: free, allocated or unhealthy. "+serverOnly, "resource", "state")
	healthDesc = gauge("devices_unsound",
		"Devices that are failed (unhealthy) or degraded (chosen last), by state and reason. "+serverOnly,
		"resource", "state", "reason")
	strandedDesc = gauge("devices_stranded",
		"Free devices without a free device of the other kind on the same switch. "+serverOnly, "resource")
	degradedDesc = gauge("containers_degraded",
		"Containers that have not terminated and have a GPU and a VF of a pair on different switches. "+serverOnly)
	enforcedDesc = gauge("alignment_enforced",
		"1 while the pod annotation tandem.dev/alignment is enforced, otherwise 0: no source of intent with "+
			"annotations is available. "+serverOnly)
	registeredDesc = gauge("kubelet_registered",
		"1 while the kubelet uses the devices that this plugin offers for a resource, otherwise 0: the kubelet is "+
			"unavailable, or another plugin has registered the resource.", "resource")
)

func gauge(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil)
}

// state is the collector of gauges, which are read on each scrape.
type state struct{ *Monitor }

// Describe implements prometheus.Collector.
func (s state) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		roleDesc, connectedDesc, devicesDesc, healthDesc, strandedDesc, degradedDesc, enforcedDesc, registeredDesc,
	} {
		descs <- d
	}
}

// Collect implements prometheus.Collector.
func (s state) Collect(metrics chan<- prometheus.Metric) {
	send := func(desc *prometheus.Desc, value int, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(value), labels...)
	}
	s.mu.Lock()
	node := s.node
	for name, o := range s.offered {
		if o.due {
			send(registeredDesc, number(o.registered), name)
		}
	}
	s.mu.Unlock()
	if node == nil {
		return
	}
	role := node.Role()
	for _, r := range coordination.Roles {
		send(roleDesc, number(r == role), string(r))
	}
	if enforcer, knows := node.(Enforcer); knows {
		if now, serves := enforcer.Enforcement(); serves {
			send(enforcedDesc, number(now.Enforced()))
		}
	}
	resources := node.Resources()
	if role == coordination.Serves {
		send(degradedDesc, len(degraded.Containers(resources)))
	}
	for _, r := range resources {
		start(s.counts.allocations.MustCurryWith(prometheus.Labels{"resource": r.GetName()}), admission.Outcomes)
		send(connectedDesc, number(r.GetConnected()), r.GetName())
		states, stranded := count(r.GetDevices())
		for state, n := range states {
			send(devicesDesc, n, r.GetName(), state)
		}
		send(strandedDesc, stranded, r.GetName())
		for cause, n := range unsound(r.GetDevices()) {
			send(healthDesc, n, r.GetName(), cause.state, cause.reason)
		}
	}
}

// count returns the number of devices by state, and the number of stranded devices.
func count(devices []*api.DeviceStatus) (states map[string]int, stranded int) {
	states = map[string]int{"free": 0, "allocated": 0, "unhealthy": 0}
	for _, d := range devices {
		switch {
		case !d.GetDevice().GetHealthy():
			states["unhealthy"]++
		case d.GetAllocated():
			states["allocated"]++
		default:
			states["free"]++
		}
		stranded += number(d.GetStranded())
	}
	return states, stranded
}

// cause is a state of health with its reason.
type cause struct{ state, reason string }

// unsound returns the number of failed and degraded devices by state and reason.
func unsound(devices []*api.DeviceStatus) map[cause]int {
	causes := map[cause]int{}
	for _, d := range devices {
		if health := device.Health(d.GetDevice()); health != "" {
			causes[cause{health, d.GetDevice().GetReason()}]++
		}
	}
	return causes
}

func number(is bool) int {
	if is {
		return 1
	}
	return 0
}
