// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
)

// topologies is the framework's name for NodeTopology objects.
const topologies = fwk.EventResource(v1alpha1.Plural + ".v1alpha1.tandem.dev")

// EventsToRegister returns the events after which a refused pod is retried: the deletion of a pod with
// devices, a published object that admits the pod, a new or changed node, and a different request of the pod.
// The removal of a new node's taint may be the only sign of its addition.
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		{Event: fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Delete}, QueueingHintFn: p.afterPod},
		{Event: fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Update}, QueueingHintFn: afterUpdate},
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

// afterPod retries a pod when another pod is deleted from a node that published that pod's holdings. The
// scheduler announces a nominated pod's deletion in the same way, and Filter has counted that pod as well.
func (p *Plugin) afterPod(logger klog.Logger, _ *v1.Pod, gone, _ any) (fwk.QueueingHint, error) {
	other, isPod := gone.(*v1.Pod)
	if !isPod {
		return fwk.Queue, fmt.Errorf("a pod is gone: got %T", gone)
	}
	object, concerned := p.objects.valid(cmp.Or(other.Spec.NodeName, other.Status.NominatedNodeName)), false
	if object == nil {
		return fwk.QueueSkip, nil
	}
	ctx := klog.NewContext(context.Background(), logger)
	if object.try(ctx, func() { concerned = object.node.Concerns(other) }) && !concerned {
		return fwk.QueueSkip, nil
	}
	return fwk.Queue, nil
}

// afterUpdate retries a pod whose own request changes: the annotation for the alignment, or the resources.
func afterUpdate(_ klog.Logger, pod *v1.Pod, before, after any) (fwk.QueueingHint, error) {
	older, wasPod := before.(*v1.Pod)
	newer, isPod := after.(*v1.Pod)
	switch {
	case !wasPod || !isPod:
		return fwk.Queue, fmt.Errorf("a pod has changed: got %T and %T", before, after)
	case newer.UID != pod.UID:
		return fwk.QueueSkip, nil
	}
	was, err := hashRequest(older)
	if err != nil {
		return fwk.Queue, err
	}
	is, err := hashRequest(newer)
	if err == nil && is == was {
		return fwk.QueueSkip, nil
	}
	return fwk.Queue, err
}

// afterObject retries a pod when a node with its newly published object can admit the pod. It skips no pod
// that Filter would accept: holdings of deleted pods count as free, as in Filter; pods on their way to the
// node only take more and are ignored.
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
		present.Insert(other.(*v1.Pod).UID)
	}
	admitted, ctx := false, klog.NewContext(context.Background(), logger)
	if object.refusal() == nil &&
		object.try(ctx, func() { admitted = object.node.State(present.Has).Ask(pod).Admitted }) && !admitted {
		return fwk.QueueSkip, nil
	}
	return fwk.Queue, nil
}
