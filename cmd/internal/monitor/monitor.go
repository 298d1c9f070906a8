// SPDX-License-Identifier: Apache-2.0

// Package monitor shows what a daemon does to those who watch it: counts for Prometheus on /metrics, and on
// /healthz and /readyz whether it lives and whether the kubelet knows what it offers. It is told by
// coordination and deviceplugin, whose observer it is, and looks at their state when it is asked; neither
// knows of it. Nothing of it is served unless an address is given.
package monitor

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/intent"
)

// Monitor watches one daemon. It is the observer of its Node and of its Servers. A nil one watches nothing.
type Monitor struct {
	registry *prometheus.Registry
	counts   counts
	verdict  func(admission.Verdict) // told of every Allocate too; nil for nobody

	mu      sync.Mutex
	node    Node              // nil while the daemon takes no part
	offered map[string]*offer // by resource name
	begun   bool              // it is known what there is to offer
	waits   error             // what that waits for; nil for nothing
}

// Node is a coordination.Node.
type Node interface {
	Role() coordination.Role
	Resources() []*api.Resource
	Alive(context.Context) error
}

// Enforcer is a Node that knows whether the annotations of pods are enforced; false where another one does.
type Enforcer interface {
	Enforcement() (now intent.Enforcement, serves bool)
}

// offer is a resource that the daemon offers to the kubelet.
type offer struct {
	alive      func(context.Context) error // nil before its server is there
	due        bool                        // it has devices, so that the kubelet is to know it
	registered bool
	cause      error // why it is so no longer; nil for none
}

// New makes a Monitor of a daemon of a version. Verdict is told of every Allocate that the coordinator
// answers here, and returns at once; nil for nobody.
func New(version string, verdict func(admission.Verdict)) *Monitor {
	m := &Monitor{
		registry: prometheus.NewRegistry(), counts: newCounts(), verdict: verdict, offered: map[string]*offer{},
	}
	m.counts.build.WithLabelValues(version).Set(1)
	for _, c := range m.counts.all() {
		m.registry.MustRegister(c)
	}
	m.registry.MustRegister(state{m}, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Node makes a Node the one that is watched, until done is called.
func (m *Monitor) Node(node Node) (done func()) {
	if m == nil {
		return func() {}
	}
	m.setNode(node)
	return func() { m.setNode(nil) }
}

func (m *Monitor) setNode(node Node) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.node = node
}

// Wait says what the daemon waits for before it can look for its devices. It is not ready until Begin.
func (m *Monitor) Wait(reason error) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.begun, m.waits = false, reason
}

// Begin says that the daemon has looked for its devices, and which resources have some, so that the kubelet
// is to know them. Before that the daemon is not ready.
func (m *Monitor) Begin(resources ...string) {
	if m == nil {
		return
	}
	for _, name := range resources {
		m.change(name, func(o *offer) { o.due = true })
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.begun, m.waits = true, nil
}

// Resource makes one of those watched that are offered to the kubelet, until done is called. Alive says what
// hangs.
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

func (m *Monitor) change(name string, change func(*offer)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.offered[name] == nil {
		m.offered[name] = &offer{}
	}
	change(m.offered[name])
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

// Asked implements admission.DecisionObserver.
func (m *Monitor) Asked(source intent.Source) {
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

// Event counts what became of an event about a pod.
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
