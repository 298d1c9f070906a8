// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	fwk "k8s.io/kube-scheduler/framework"
)

// Plugin filters nodes by the kubelet's verdict, and prefers nodes whose devices make pairs.
type Plugin struct {
	objects *Objects
	pods    cache.Indexer        // the scheduler's pods that have not ended; by node
	nodes   fwk.SharedLister     // the snapshot of the current scheduling cycle
	events  events.EventRecorder // nil in tests

	mu       sync.Mutex
	reported map[subject]time.Time // when Events of the last reportAgain were written
}

// byNode is the name of the index of the scheduler's pods by node.
const byNode = "tandem.dev/node"

var (
	_ fwk.PreFilterPlugin   = (*Plugin)(nil)
	_ fwk.FilterPlugin      = (*Plugin)(nil)
	_ fwk.PreScorePlugin    = (*Plugin)(nil)
	_ fwk.ScorePlugin       = (*Plugin)(nil)
	_ fwk.ReservePlugin     = (*Plugin)(nil)
	_ fwk.EnqueueExtensions = (*Plugin)(nil)
	_ fwk.SignPlugin        = (*Plugin)(nil)
)

// New is the framework's plugin factory. The plugin takes no arguments, and has no objects before Watch.
func (o *Objects) New(_ context.Context, _ runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
	pods := handle.SharedInformerFactory().Core().V1().Pods().Informer()
	err := pods.AddIndexers(cache.Indexers{byNode: nodeOf})
	if err != nil && pods.GetIndexer().GetIndexers()[byNode] == nil { // else another profile has added the index
		return nil, fmt.Errorf("index pods by node: %w", err)
	}
	p := &Plugin{objects: o, pods: pods.GetIndexer(), nodes: handle.SnapshotSharedLister()}
	if recorder := handle.EventRecorder(); recorder != nil {
		p.events = recorder
	}
	o.needed = true
	return p, nil
}

func nodeOf(object any) ([]string, error) {
	if pod, isPod := object.(*v1.Pod); isPod && pod.Spec.NodeName != "" {
		return []string{pod.Spec.NodeName}, nil
	}
	return nil, nil
}

// Name returns the plugin's name in the scheduler's configuration.
func (*Plugin) Name() string { return Name }

// SignPod excludes pods with devices from the scheduler's batching, because each such pod changes the node's
// offer.
func (p *Plugin) SignPod(_ context.Context, pod *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	if p.asksForDevices(pod) {
		return nil, fwk.NewStatus(fwk.Unschedulable, "pods with GPUs and VFs are not batched")
	}
	return nil, nil
}

// asksForDevices reports whether a pod requests a published resource.
func (p *Plugin) asksForDevices(pod *v1.Pod) bool {
	for _, resource := range p.objects.resources() {
		if asks(pod, resource) {
			return true
		}
	}
	return false
}
