// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tandem-k8s/tandem/cluster/publish"
	"github.com/tandem-k8s/tandem/cmd/internal/events"
	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/topology"
)

// namespace begins the name of every metric.
const namespace = "tandem"

// latencies are the buckets of the preferred allocation: a question takes a millisecond or two, and 100 ms at
// most.
var latencies = []float64{.0005, .001, .002, .003, .005, .01, .02, .05, .1, .2}

// counts are what is counted as it happens. Labels have few values: resource names are at most as many as the
// coordinator keeps, all others are words of a fixed list, each of which is there from the start so that a
// first increase can be seen.
type counts struct {
	pairs, allocations, ended, questions, alone *prometheus.CounterVec
	registrations, events, claims, published    *prometheus.CounterVec
	planned                                     prometheus.Counter
	prefer, claim                               *prometheus.HistogramVec
	build                                       *prometheus.GaugeVec
}

// What became of a write.
const (
	publishWritten = "written"
	publishFailed  = "failed"
)

func newCounts() counts {
	c := counts{
		pairs: counter("pairs_total",
			"Pairs of a GPU and a VF that containers were given, by distance (PIX and PXB are one switch). "+
				"By the plugin that serves.", "distance"),
		allocations: counter("allocations_total",
			"Allocate calls that the coordinator answered. The call that completes a container with pairs is aligned "+
				"(all on one switch each) or degraded, any other granted; refused_double: another pod has the device; "+
				"refused_alignment: alignment is required. By the plugin that serves.",
			"resource", "outcome"),
		planned: prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: "plans_total",
			Help: "Plans made for a resource that a container was not yet asked about. By the plugin that serves."}),
		ended: counter("plans_ended_total",
			"Plans by what became of them: kept, overruled (the kubelet gave other devices), dropped (not wanted, "+
				"or refused), expired. By the plugin that serves.",
			"outcome"),
		questions: counter("questions_total",
			"Questions that the coordinator answered, by what told it who asks and for what; "+
				"podresources and inference do not know what it wants. By the plugin that serves.", "source"),
		alone: counter("answers_alone_total",
			"Calls of the kubelet's that this plugin answered without the coordinator, so that nothing was paired.",
			"call"),
		registrations: counter("kubelet_registrations_total",
			"Registrations with the kubelet; every one after the first is a re-registration.", "resource"),
		events: counter("events_total",
			"Kubernetes Events about pods by what became of them; dropped: too many at once.", "outcome"),
		prefer: prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace,
			Name:    "preferred_allocation_duration_seconds",
			Help:    "Time to answer GetPreferredAllocation, for which every other pod start of the node waits.",
			Buckets: latencies}, []string{"resource"}),
		claims: counter("claims_total",
			"Claims that the kubelet had prepared or unprepared by the DRA driver, by what became of them: done, or "+
				"failed, after which the kubelet asks again.", "call", "outcome"),
		published: counter("publish_total",
			"Writes of what is published of the node (--publish), by target and what became of them: written or "+
				"failed; what is there already is not written. By the plugin that serves.", "target", "outcome"),
		claim: prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace,
			Name:    "claims_duration_seconds",
			Help:    "Time to prepare or unprepare the claims of a pod, for which its start or end waits.",
			Buckets: latencies}, []string{"call"}),
		build: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: namespace, Name: "build_info", Help: "1; the version is in the label.",
		}, []string{"version"}),
	}
	for _, target := range publish.All {
		if target != publish.KubeNexus { // which has labels beside another's
			c.published.WithLabelValues(string(target), publishWritten)
			c.published.WithLabelValues(string(target), publishFailed)
		}
	}
	for level := range topology.Level(topology.Levels) {
		c.pairs.WithLabelValues(level.String())
	}
	start(c.questions,
		[]intent.Source{intent.PodsAPI, intent.Kubelet, intent.APIServer, intent.PodResources, intent.Inference})
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
