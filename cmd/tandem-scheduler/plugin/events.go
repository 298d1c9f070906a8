// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-k8s/tandem/cluster/v1alpha1"
)

// topologies is how the framework names the objects that it shall watch.
const topologies = fwk.EventResource(v1alpha1.Plural + ".v1alpha1.tandem.dev")

// EventsToRegister are those after which a pod that was refused is tried again: a pod with devices is gone, a
// node has published something that admits the pod, a node is there or has changed. That a node is added can
// be told by the removal of its taint alone.
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		{Event: fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Delete}, QueueingHintFn: p.afterPod},
		{
			Event:          fwk.ClusterEvent{Resource: topologies, ActionType: fwk.Add | fwk.Update},
			QueueingHintFn: p.afterObject,
		},
		{Event: fwk.ClusterEvent{Resource: topologies, ActionType: fwk.Delete}},
		{Event: fwk.ClusterEvent{
			Resource: fwk.Node, ActionType: fwk.Add | fwk.UpdateNodeAllocatable | fwk.UpdateNodeTaint,
		}},
	}, nil
}

// afterPod tries a pod again when one has gone from a node that published what it held.
func (p *Plugin) afterPod(logger klog.Logger, _ *v1.Pod, gone, _ any) (fwk.QueueingHint, error) {
	other, isPod := gone.(*v1.Pod)
	if !isPod {
		return fwk.Queue, fmt.Errorf("a pod is gone: got %T", gone)
	}
	object, concerned := p.object(other.Spec.NodeName), false
	if object == nil {
		return fwk.QueueSkip, nil
	}
	if object.try(logger, func() { concerned = object.node.Concerns(other) }) && !concerned {
		return fwk.QueueSkip, nil
	}
	return fwk.Queue, nil
}

// afterObject tries a pod again when a node, as it has published itself now, can admit it. It skips no pod
// that Filter would let pass: what pods hold that are gone is free, as for Filter, and pods on their way to
// the node only take more, so that they are left out.
func (p *Plugin) afterObject(logger klog.Logger, pod *v1.Pod, _, changed any) (fwk.QueueingHint, error) {
	object, isObject := changed.(*published)
	if !isObject {
		return fwk.Queue, fmt.Errorf("a NodeTopology has changed: got %T", changed)
	}
	there, err := p.pods.ByIndex(byNode, object.Name)
	if err != nil {
		return fwk.Queue, fmt.Errorf("list the pods of node %s: %w", object.Name, err)
	}
	present := make(sets.Set[types.UID], len(there))
	for _, other := range there {
		present.Insert(kubeletUID(other.(*v1.Pod)))
	}
	admitted := false
	if object.refusal() == nil &&
		object.try(logger, func() { admitted = object.node.State(present.Has).Ask(pod).Admitted }) && !admitted {
		return fwk.QueueSkip, nil
	}
	return fwk.Queue, nil
}
