package plugin

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"
)

// Name is the plugin's in the scheduler's configuration.
const Name = "Tandem"

// Plugin gives the kubelet's verdict, and prefers nodes whose devices make pairs.
type Plugin struct {
	objects cache.Indexer    // of *published, by node
	nodes   fwk.SharedLister // as the pod that is being scheduled sees them
}

var (
	_ fwk.PreFilterPlugin   = (*Plugin)(nil)
	_ fwk.FilterPlugin      = (*Plugin)(nil)
	_ fwk.PreScorePlugin    = (*Plugin)(nil)
	_ fwk.ScorePlugin       = (*Plugin)(nil)
	_ fwk.ReservePlugin     = (*Plugin)(nil)
	_ fwk.EnqueueExtensions = (*Plugin)(nil)
	_ fwk.SignPlugin        = (*Plugin)(nil)
)

// New is the framework's factory of plugins. It takes no arguments from the scheduler's configuration. The
// scheduler starts the informer with its own, and schedules nothing before it has all objects.
func New(ctx context.Context, _ runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
	objects, err := listWatch(handle.KubeConfig())
	if err != nil {
		return nil, fmt.Errorf("make a client for NodeTopology objects: %w", err)
	}
	return newPlugin(ctx, handle, objects)
}

func newPlugin(ctx context.Context, handle fwk.Handle, objects cache.ListerWatcher) (*Plugin, error) {
	shared, err := informer(ctx, handle.SharedInformerFactory(), objects)
	if err != nil {
		return nil, fmt.Errorf("watch NodeTopology objects: %w", err)
	}
	return &Plugin{objects: shared.GetIndexer(), nodes: handle.SnapshotSharedLister()}, nil
}

// Name is the plugin's in the scheduler's configuration.
func (*Plugin) Name() string { return Name }

// SignPod leaves pods without devices to the scheduler's batching. What a node offers for devices changes
// with every pod that goes there, so that other pods are not batched.
func (p *Plugin) SignPod(_ context.Context, pod *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	if p.asksForDevices(pod) {
		return nil, fwk.NewStatus(fwk.Unschedulable, "pods with GPUs and VFs are not batched")
	}
	return nil, nil
}

// asksForDevices reports whether a pod asks for a resource that any node has published.
func (p *Plugin) asksForDevices(pod *v1.Pod) bool {
	for _, resource := range p.objects.ListIndexFuncValues(byResource) {
		if asks(pod, resource) {
			return true
		}
	}
	return false
}

// object is what a node has published, nil where that is nothing that could be read.
func (p *Plugin) object(node string) *published {
	found, exists, err := p.objects.GetByKey(node)
	if err != nil || !exists {
		return nil
	}
	if object := found.(*published); object.node != nil {
		return object
	}
	return nil
}
