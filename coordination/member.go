// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"
	"log/slog"

	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
)

// Member is one resource of one plugin in the coordination. The methods survive without the coordinator:
// Prefer then has no answer, and the others use only this plugin's data. Allocated fails only to refuse.
type Member struct {
	announced *announcement
	chooser   *chooser
	client    *membership
	listed    *listed
	withheld  *withholder
	config    *Config
	log       *slog.Logger
}

// Publish announces the resource's devices; the latest announcement replaces the previous announcement.
func (m *Member) Publish(a device.Announcement) {
	a.Own = true
	if err := m.chooser.machine.Refresh(a); err != nil {
		m.log.Warn("PCI tree not read; using the last known tree", "error", err)
	}
	m.announced.publish(a)
}

// AwaitTaken waits until the coordinator uses the last announcement, for at most a second. The kubelet must
// not learn of a new device before, because the kubelet would ask about a device of unknown location.
func (m *Member) AwaitTaken(ctx context.Context) { m.announced.await(ctx) }

// List returns the resource's devices for the coordinator and for the kubelet, and a channel that is closed
// when the devices must be listed again: those that the plugin finds, as unhealthy if they must not be
// assigned now, and gone ones that the kubelet may look up, as unhealthy. One goroutine calls List.
func (m *Member) List(found []device.Device) (list []device.Device, again <-chan struct{}) {
	return m.withheld.withhold(m.announced.resource, m.announced.kind, m.listed.addFound(found))
}

// Prefer asks the coordinator a question of the kubelet until ctx is done. An error means that there is no
// answer: Alone then answers the kubelet.
func (m *Member) Prefer(ctx context.Context, q *api.PreferRequest) ([]string, error) {
	answer, err := ask(ctx, m.client, q, (*nodeServer).Prefer, api.CoordinationClient.Prefer)
	if err != nil {
		return nil, err
	}
	m.questionLog(q).Info("preferred", "chosen", answer.GetDevices(), "source", "coordinator",
		"reason", answer.GetReason())
	return answer.GetDevices(), nil
}

// Alone answers a question that the coordinator has not answered, for a cause. It reads one file of the run
// directory, in memory, for at most a second.
func (m *Member) Alone(q *api.PreferRequest, cause error) []string {
	m.countAlone(admission.PreferCall)
	chosen, reason := m.chooser.choose(q)
	m.questionLog(q).Warn("preferred", "chosen", chosen, "source", "local", "reason", reason, "error", cause)
	return chosen
}

// questionLog returns the log of a question.
func (m *Member) questionLog(q *api.PreferRequest) *slog.Logger {
	return m.log.With("size", q.GetSize(), "available", len(q.GetAvailable()),
		"must_include", len(q.GetMustInclude()))
}

// countAlone counts a call without an answer of the coordinator.
func (m *Member) countAlone(call admission.Call) {
	if m.config.Observer != nil {
		m.config.Observer(call)
	}
}
