// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-k8s/tandem/coordination/verdict"
)

// stateKey is the key of the pod's request in the cycle state.
const stateKey = fwk.StateKey("tandem.dev/request")

// PreFilter skips pods without a request for published resources.
func (p *Plugin) PreFilter(
	_ context.Context, state fwk.CycleState, pod *v1.Pod, _ []fwk.NodeInfo,
) (*fwk.PreFilterResult, *fwk.Status) {
	if !p.asksForDevices(pod) {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	request, err := hashRequest(pod)
	if err != nil {
		return nil, fwk.AsStatus(fmt.Errorf("read what pod %s asks for: %w", pod.Name, err))
	}
	state.Write(stateKey, request)
	return nil, nil
}

// PreFilterExtensions returns nil: Filter reads the pods of the NodeInfo, from which preemption has removed
// its victims.
func (*Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// Filter rejects nodes whose kubelet would refuse the pod, with the kubelet's reason. If the empty node would
// refuse the pod too, preemption cannot help.
func (p *Plugin) Filter(
	ctx context.Context, state fwk.CycleState, pod *v1.Pod, info fwk.NodeInfo,
) *fwk.Status {
	object := p.objects.find(info.Node().Name)
	if object == nil || !object.describes(info) {
		return nil
	}
	request, err := readRequest(state)
	if err != nil {
		return fwk.AsStatus(err)
	}
	v := verdict.Verdict{Admitted: true}
	if object.refusal() == nil {
		object.try(ctx, func() { v = object.observation(info).verdict(pod, request) })
	}
	if refusal := object.refusal(); refusal != nil {
		p.report(info.Node(), object, "NodeTopologyRefused", "the scheduler does not filter this node", refusal)
		return nil
	}
	if object.left != nil {
		p.report(info.Node(), object, "NodeTopologyIncomplete",
			"the scheduler ignores a part of the object", object.left)
	}
	switch {
	case v.Admitted:
		return nil
	case v.Never:
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, v.Reason)
	default:
		return fwk.NewStatus(fwk.Unschedulable, v.Reason)
	}
}

func readRequest(state fwk.CycleState) (request, error) {
	data, err := state.Read(stateKey)
	if err != nil {
		return "", fmt.Errorf("read the pod's request: %w", err)
	}
	return data.(request), nil
}
