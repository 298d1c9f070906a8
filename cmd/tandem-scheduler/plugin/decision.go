// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

// decisions is the verbosity for the log of decisions; "--vmodule=decision=4" logs nothing else.
const decisions = 4

// Reserve logs the pods on which a decision was based. If the kubelet refuses the pod nevertheless, the log
// shows the pods unknown to the scheduler.
func (p *Plugin) Reserve(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	logger := klog.FromContext(ctx).V(decisions)
	object := p.objects.valid(node)
	if _, err := readRequest(state); err != nil || object == nil || !logger.Enabled() {
		return nil // as most pods: without devices, without an object, without interest
	}
	info, err := p.nodes.NodeInfos().Get(node)
	if err != nil {
		return fwk.AsStatus(fmt.Errorf("look up the pods of node %s: %w", node, err))
	}
	var holding, coming []types.UID
	object.try(ctx, func() { holding, coming = object.counted(info, pod.UID) })
	logger.Info("Tandem has a node for the pod", "pod", klog.KObj(pod), "podUID", pod.UID, "node", node,
		"holding", holding, "coming", coming)
	return nil
}

// Unreserve does nothing: a log line cannot be undone.
func (*Plugin) Unreserve(context.Context, fwk.CycleState, *v1.Pod, string) {}

// counted returns the pods that a verdict on another pod considers: those that hold devices according to the
// object, and those on their way.
func (o *published) counted(info fwk.NodeInfo, other types.UID) (holding, coming []types.UID) {
	s := o.observation(info)
	for _, p := range info.GetPods() {
		if uid := p.GetPod().UID; s.held.Holds(uid) {
			holding = append(holding, uid)
		}
	}
	for _, pod := range s.inFlight {
		if pod.UID != other { // pods of a group are in the NodeInfo before they are reserved
			coming = append(coming, pod.UID)
		}
	}
	return holding, coming
}
