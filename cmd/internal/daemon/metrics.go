// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/publish"
	"github.com/tandem-k8s/tandem/topology"
)

// namespace begins the name of every metric.
const namespace = "tandem"

// latencies are the buckets of the preferred allocation: a question takes a millisecond or two, and 100 ms at
// most.
var latencies = []float64{.0005, .001, .002, .003, .005, .01, .02, .05, .1, .2}

// counts are the counters. Labels have few values: at most as many resource names as the coordinator keeps,
// and words of fixed lists. Each word is present from the start, so that the first increase is visible.
type counts struct {
	pairs, allocations, ended, questions, alone *prometheus.CounterVec
	registrations, events, claims, published    *prometheus.CounterVec
	planned                                     prometheus.Counter
	prefer, claim                               *prometheus.HistogramVec
	build                                       *prometheus.GaugeVec
}

// Outcomes of a write.
const (
	publishWritten = "written"
	publishFailed  = "failed"
)

// serverOnly ends the help text of a metric that only the plugin with the coordinator reports.
const serverOnly = "Reported by the serving plugin."

func newCounts(registry *prometheus.Registry) counts {
	made := promauto.With(registry)
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return made.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
	}
	c := counts{
		pairs: counter("pairs_total",
			"Pairs of a GPU and a VF in allocated containers, by distance (PIX, PXB and C2C: same switch). "+
				serverOnly, "distance"),
		allocations: counter("allocations_total",
			"Allocate calls answered by the coordinator. Outcomes: aligned (last call of a container, each pair "+
				"on one switch), degraded (last call of a container, some pair not on one switch), granted (any other "+
				"call), refused_double (another pod holds the device), refused_alignment (required alignment not "+
				"possible). "+serverOnly,
			"resource", "outcome"),
		planned: made.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: "plans_total",
			Help: "Reservations of devices for the container's second resource. " + serverOnly}),
		ended: counter("plans_ended_total",
			"Ended plans by outcome: kept, overruled (the kubelet allocated other devices), dropped (not requested "+
				"or refused), expired. "+serverOnly,
			"outcome"),
		questions: counter("questions_total",
			"GetPreferredAllocation calls answered by the coordinator, by source of the pod's identity and "+
				"requests; podresources and inference do not provide requests. "+serverOnly, "source"),
		alone: counter("answers_alone_total",
			"Kubelet calls answered by this plugin without the coordinator; devices of these calls are not paired.",
			"call"),
		registrations: counter("kubelet_registrations_total",
			"Registrations with the kubelet, including re-registrations.", "resource"),
		events: counter("events_total",
			"Kubernetes Events about pods by outcome; dropped: rate limit exceeded.", "outcome"),
		prefer: made.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace,
			Name:    "preferred_allocation_duration_seconds",
			Help:    "Duration of GetPreferredAllocation calls. The kubelet admits no other pod during a call.",
			Buckets: latencies}, []string{"resource"}),
		claims: counter("claims_total",
			"Claims that the DRA driver prepared or unprepared, by outcome: done or failed. The kubelet retries "+
				"failed calls.", "call", "outcome"),
		published: counter("publish_total",
			"Writes of the node's published objects (--publish), by target and outcome: written or failed. Unchanged "+
				"objects are not written. "+serverOnly, "target", "outcome"),
		claim: made.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace,
			Name:    "claims_duration_seconds",
			Help:    "Duration of preparing or unpreparing a pod's claims. The pod's start or end waits for the call.",
			Buckets: latencies}, []string{"call"}),
		build: made.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: namespace, Name: "build_info", Help: "Constant 1 with the version as label.",
		}, []string{"version"}),
	}
	for _, target := range publish.All.Objects() {
		c.published.WithLabelValues(target, publishWritten)
		c.published.WithLabelValues(target, publishFailed)
	}
	for level := range topology.Level(topology.Levels) {
		c.pairs.WithLabelValues(level.String())
	}
	startCounters(c.questions,
		[]intent.Source{intent.PodsAPI, intent.Kubelet, intent.PodResources, intent.Inference})
	startCounters(c.ended, admission.PlanOutcomes)
	startCounters(c.alone, []admission.Call{admission.PreferCall, admission.AllocatedCall})
	startCounters(c.events, eventOutcomes)
	return c
}

func startCounters[T ~string](vec *prometheus.CounterVec, words []T) {
	for _, word := range words {
		vec.WithLabelValues(string(word))
	}
}

// The metrics of the node's state, read at each scrape.
var (
	roleDesc = newGauge("coordination_role",
		"1 for the plugin's current role in the coordination: server, client, foreign (incompatible protocol of "+
			"the server) or alone.", "role")
	connectedDesc = newGauge("resource_connected",
		"1 while the plugin of a resource is connected to the coordination, otherwise 0. "+serverOnly,
		"resource")
	devicesDesc = newGauge("devices",
		"Devices by state: free, allocated or unhealthy. "+serverOnly, "resource", "state")
	healthDesc = newGauge("devices_unsound",
		"Devices that are failed (unhealthy) or degraded (chosen last), by state and reason. "+serverOnly,
		"resource", "state", "reason")
	hintsDesc = newGauge("vf_numa_hints",
		"1 if the kubelet gets the NUMA nodes of the VFs of a resource, otherwise 0 (excludeTopology). "+serverOnly,
		"resource")
	strandedDesc = newGauge("devices_stranded",
		"Free devices without a free device of the other kind on the same switch. "+serverOnly, "resource")
	degradedDesc = newGauge("containers_degraded",
		"Containers that have not terminated and have a GPU and a VF of a pair on different switches. "+serverOnly)
	enforcedDesc = newGauge("alignment_enforced",
		"1 while the pod annotation tandem.dev/alignment is enforced, otherwise 0: no source of requests with "+
			"annotations is available. "+serverOnly)
	registeredDesc = newGauge("kubelet_registered",
		"1 while the kubelet uses the devices that this plugin offers for a resource, otherwise 0: the kubelet is "+
			"unavailable, or another plugin has registered the resource.", "resource")
)

func newGauge(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil)
}

// state is the collector of gauges, which are read on each scrape.
type state struct{ *monitor }

// Describe implements prometheus.Collector.
func (s state) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		roleDesc, connectedDesc, devicesDesc, healthDesc, hintsDesc, strandedDesc, degradedDesc, enforcedDesc,
		registeredDesc,
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
			send(registeredDesc, asNumber(o.registered), name)
		}
	}
	s.mu.Unlock()
	if node == nil {
		return
	}
	role := node.Role()
	for _, r := range coordination.Roles {
		send(roleDesc, asNumber(r == role), string(r))
	}
	if enforcer, knows := node.(enforcer); knows {
		if now, serves := enforcer.Enforcement(); serves {
			send(enforcedDesc, asNumber(now.Enforced()))
		}
	}
	resources := node.Resources()
	if role == coordination.Serves {
		send(degradedDesc, len(admission.FindDegraded(resources)))
	}
	for _, r := range resources {
		ofResource := s.counts.allocations.MustCurryWith(prometheus.Labels{"resource": r.GetName()})
		startCounters(ofResource, admission.Outcomes)
		send(connectedDesc, asNumber(r.GetConnected()), r.GetName())
		states, stranded := countStates(r.GetDevices())
		for state, n := range states {
			send(devicesDesc, n, r.GetName(), state)
		}
		send(strandedDesc, stranded, r.GetName())
		if r.GetKind() == string(device.VF) {
			hinted := func(d *api.DeviceStatus) bool {
				_, known := device.NUMANode(d.GetDevice()).Number()
				return known
			}
			send(hintsDesc, asNumber(slices.ContainsFunc(r.GetDevices(), hinted)), r.GetName())
		}
		for cause, n := range countUnsound(r.GetDevices()) {
			send(healthDesc, n, r.GetName(), cause.state, cause.reason)
		}
	}
}

// countStates returns the number of devices by state, and the number of stranded devices.
func countStates(devices []*api.DeviceStatus) (states map[string]int, stranded int) {
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
		stranded += asNumber(d.GetStranded())
	}
	return states, stranded
}

// cause is a state of health with its reason.
type cause struct{ state, reason string }

// countUnsound returns the number of failed and degraded devices by state and reason.
func countUnsound(devices []*api.DeviceStatus) map[cause]int {
	causes := map[cause]int{}
	for _, d := range devices {
		if health := device.Health(d.GetDevice()); health != "" {
			causes[cause{health, d.GetDevice().GetReason()}]++
		}
	}
	return causes
}

func asNumber(is bool) int {
	if is {
		return 1
	}
	return 0
}
