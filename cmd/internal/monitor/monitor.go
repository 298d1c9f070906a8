// SPDX-License-Identifier: Apache-2.0

// Package monitor exposes the state of a daemon: Prometheus metrics on /metrics, liveness on /healthz and
// registration with the kubelet on /readyz, and Kubernetes Events. A Monitor is the observer of coordination
// and deviceplugin, which do not import this package, and reads their state on each request. Nothing is
// served without an address.
package monitor

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/intent"
)

// Monitor watches one daemon, as observer of its Node and Servers. A nil Monitor watches nothing.
type Monitor struct {
	registry *prometheus.Registry
	counts   counts
	verdict  func(admission.Verdict) // called for every Allocate; may be nil
	status
}

// Node is a coordination.Node.
type Node interface {
	Role() coordination.Role
	Resources() []*api.Resource
	Alive(context.Context) error
}

// Enforcer is a Node that reports whether the annotations of pods are enforced; serves is false if another
// node serves.
type Enforcer interface {
	Enforcement() (now intent.Enforcement, serves bool)
}

// New returns a Monitor for a daemon of a version. It calls verdict, which must return at once, for each
// Allocate that this daemon's coordinator answers; verdict may be nil.
func New(version string, verdict func(admission.Verdict)) *Monitor {
	m := &Monitor{
		registry: prometheus.NewRegistry(), counts: newCounts(), verdict: verdict,
		status: status{offered: map[string]*offer{}},
	}
	m.counts.build.WithLabelValues(version).Set(1)
	for _, c := range m.counts.all() {
		m.registry.MustRegister(c)
	}
	m.registry.MustRegister(state{m}, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Node sets the watched Node, until done is called.
func (m *Monitor) Node(node Node) (done func()) {
	if m == nil {
		return func() {}
	}
	m.setNode(node)
	return func() { m.setNode(nil) }
}

// Wait sets the reason for which the daemon waits before it can look for devices. The daemon is not ready
// until Begin.
func (m *Monitor) Wait(reason error) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.begun, m.waits, m.lacks = false, reason, nil
}

// Lack sets the reason for which the daemon offers only a part of its devices. The daemon is not ready until
// Begin.
func (m *Monitor) Lack(reason error) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.begun, m.waits, m.lacks = true, nil, reason
}

// Remark sets the source of a line for /readyz?verbose that does not affect readiness, "" for none.
func (m *Monitor) Remark(remark func() string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.remark = remark
}

// Begin reports that the daemon has looked for its devices, and the resources with devices, which the kubelet
// must know. The daemon is not ready until Begin.
func (m *Monitor) Begin(resources ...string) {
	if m == nil {
		return
	}
	for _, name := range resources {
		m.change(name, func(o *offer) { o.due = true })
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.begun, m.waits, m.lacks = true, nil, nil
}

// Resource watches a resource offered to the kubelet, until done is called. Alive returns an error for a hung
// part.
func (m *Monitor) Resource(name string, alive func(context.Context) error) (done func()) {
	if m == nil {
		return func() {}
	}
	m.change(name, func(o *offer) { o.alive = alive })
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.offered, name)
	}
}

// Offered implements deviceplugin.RegistrationObserver.
func (m *Monitor) Offered(resource string) {
	m.change(resource, func(o *offer) { o.due = true })
	m.counts.prefer.WithLabelValues(resource)
	m.counts.registrations.WithLabelValues(resource)
}

// Registered implements deviceplugin.RegistrationObserver.
func (m *Monitor) Registered(resource string) {
	m.change(resource, func(o *offer) { o.registered, o.cause = true, nil })
	m.counts.registrations.WithLabelValues(resource).Inc()
}

// Unregistered implements deviceplugin.RegistrationObserver.
func (m *Monitor) Unregistered(resource string, cause error) {
	m.change(resource, func(o *offer) { o.registered, o.cause = false, cause })
}

// Preferred implements deviceplugin.RegistrationObserver.
func (m *Monitor) Preferred(resource string, took time.Duration) {
	m.counts.prefer.WithLabelValues(resource).Observe(took.Seconds())
}

// QuestionAnswered implements admission.DecisionObserver.
func (m *Monitor) QuestionAnswered(source intent.Source) {
	m.counts.questions.WithLabelValues(string(source)).Inc()
}

// Planned implements admission.DecisionObserver.
func (m *Monitor) Planned(resources int) { m.counts.planned.Add(float64(resources)) }

// PlanEnded implements admission.DecisionObserver.
func (m *Monitor) PlanEnded(outcome admission.PlanOutcome) {
	m.counts.ended.WithLabelValues(string(outcome)).Inc()
}

// Alone implements admission.DecisionObserver.
func (m *Monitor) Alone(call admission.Call) {
	m.counts.alone.WithLabelValues(string(call)).Inc()
}

// Event counts the outcome of an event about a pod.
func (m *Monitor) Event(outcome string) {
	m.counts.events.WithLabelValues(outcome).Inc()
}

// Published counts the writes of a publication.
func (m *Monitor) Published(target string, err error) {
	if m == nil {
		return
	}
	outcome := publishWritten
	if err != nil {
		outcome = publishFailed
	}
	m.counts.published.WithLabelValues(target, outcome).Inc()
}

// Allocated implements admission.DecisionObserver.
func (m *Monitor) Allocated(v admission.Verdict) {
	m.counts.allocations.WithLabelValues(v.Resource, string(v.Outcome)).Inc()
	for _, p := range v.Pairs {
		m.counts.pairs.WithLabelValues(p.Distance.Level.String()).Inc()
	}
	if m.verdict != nil {
		m.verdict(v)
	}
}

// Claims implements dra.DriverObserver.
func (m *Monitor) Claims(call string, took time.Duration, claims, failed int) {
	m.counts.claims.WithLabelValues(call, "done").Add(float64(claims - failed))
	m.counts.claims.WithLabelValues(call, "failed").Add(float64(failed))
	m.counts.claim.WithLabelValues(call).Observe(took.Seconds())
}
