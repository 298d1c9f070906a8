package plugin

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-k8s/tandem/cluster/v1alpha1"
	"github.com/tandem-k8s/tandem/cluster/verdict"
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
func (p *Plugin) afterPod(_ klog.Logger, _ *v1.Pod, gone, _ any) (fwk.QueueingHint, error) {
	other, isPod := gone.(*v1.Pod)
	if !isPod {
		return fwk.Queue, fmt.Errorf("a pod is gone: got %T", gone)
	}
	if object := p.object(other.Spec.NodeName); object == nil || !object.matters(other) {
		return fwk.QueueSkip, nil
	}
	return fwk.Queue, nil
}

// afterObject tries a pod again when a node, as it has published itself now, would admit it. Pods that were
// gone from the node before have made their own event.
func (p *Plugin) afterObject(_ klog.Logger, pod *v1.Pod, _, changed any) (fwk.QueueingHint, error) {
	node, err := p.node(changed)
	if err != nil {
		return fwk.Queue, err
	}
	if node.State(func(types.UID) bool { return true }).Ask(pod).Admitted {
		return fwk.Queue, nil
	}
	return fwk.QueueSkip, nil
}

// node reads an object as the scheduler's own informer has it, unless the plugin's has the same version.
func (p *Plugin) node(changed any) (*verdict.Node, error) {
	object, isObject := changed.(*unstructured.Unstructured)
	if !isObject {
		return nil, fmt.Errorf("a NodeTopology has changed: got %T", changed)
	}
	known := p.object(object.GetName())
	if known != nil && known.ResourceVersion == object.GetResourceVersion() {
		return known.node, nil
	}
	var topology v1alpha1.NodeTopology
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &topology); err != nil {
		return nil, fmt.Errorf("read NodeTopology %s: %w", object.GetName(), err)
	}
	return verdict.New(&topology, nil)
}
