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

// decisions is the verbosity from which on each decision is logged; "--vmodule=decision=4" logs nothing else.
const decisions = 4

// Reserve logs which pods a decision went by. Where the kubelet refuses the pod all the same, that tells what
// the scheduler did not know.
func (p *Plugin) Reserve(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	logger := klog.FromContext(ctx).V(decisions)
	object := p.object(node)
	if _, err := read(state); err != nil || object == nil || !logger.Enabled() {
		return nil // as most pods: without devices, without an object, without interest
	}
	info, err := p.nodes.NodeInfos().Get(node)
	if err != nil {
		return fwk.AsStatus(fmt.Errorf("look up the pods of node %s: %w", node, err))
	}
	var holding, coming []types.UID
	object.try(logger, func() { holding, coming = object.counted(info, pod.UID) })
	logger.Info("Tandem has a node for the pod", "pod", klog.KObj(pod), "podUID", pod.UID, "node", node,
		"holding", holding, "coming", coming)
	return nil
}

// Unreserve is the framework's: a log is not taken back.
func (*Plugin) Unreserve(context.Context, fwk.CycleState, *v1.Pod, string) {}

// counted are the pods that a verdict on another one goes by: those that hold devices by the object, and
// those on their way.
func (o *published) counted(info fwk.NodeInfo, other types.UID) (holding, coming []types.UID) {
	o.memory.mu.Lock()
	defer o.memory.mu.Unlock()
	s := o.seen(info)
	for _, p := range info.GetPods() {
		if uid := kubeletUID(p.GetPod()); s.held.Holds(uid) {
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
