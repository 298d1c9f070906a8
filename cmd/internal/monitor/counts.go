// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tandem-k8s/tandem/cmd/internal/events"
	"github.com/tandem-k8s/tandem/coordination/admission"
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

func newCounts() counts {
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
		planned: prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: "plans_total",
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
		prefer: prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace,
			Name:    "preferred_allocation_duration_seconds",
			Help:    "Duration of GetPreferredAllocation calls. The kubelet admits no other pod during a call.",
			Buckets: latencies}, []string{"resource"}),
		claims: counter("claims_total",
			"Claims that the DRA driver prepared or unprepared, by outcome: done or failed. The kubelet retries "+
				"failed calls.", "call", "outcome"),
		published: counter("publish_total",
			"Writes of the node's published objects (--publish), by target and outcome: written or failed. Unchanged "+
				"objects are not written. "+serverOnly, "target", "outcome"),
		claim: prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace,
			Name:    "claims_duration_seconds",
			Help:    "Duration of preparing or unpreparing a pod's claims. The pod's start or end waits for the call.",
			Buckets: latencies}, []string{"call"}),
		build: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: namespace, Name: "build_info", Help: "Constant 1 with the version as label.",
		}, []string{"version"}),
	}
	for _, target := range publish.All {
		if target != publish.KubeNexus { // KubeNexus has labels beside another target's
			c.published.WithLabelValues(string(target), publishWritten)
			c.published.WithLabelValues(string(target), publishFailed)
		}
	}
	for level := range topology.Level(topology.Levels) {
		c.pairs.WithLabelValues(level.String())
	}
	start(c.questions,
		[]intent.Source{intent.PodsAPI, intent.Kubelet, intent.PodResources, intent.Inference})
	start(c.ended, admission.PlanOutcomes)
	start(c.alone, []admission.Call{admission.PreferCall, admission.AllocatedCall})
	start(c.events, events.Outcomes)
	return c
}

func start[T ~string](vec *prometheus.CounterVec, words []T) {
	for _, word := range words {
		vec.WithLabelValues(string(word))
	}
}

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
}

func (c *counts) all() []prometheus.Collector {
	return []prometheus.Collector{
		c.pairs, c.allocations, c.planned, c.ended, c.questions, c.alone, c.registrations, c.events, c.prefer,
		c.build, c.claims, c.claim, c.published,
	}
}
