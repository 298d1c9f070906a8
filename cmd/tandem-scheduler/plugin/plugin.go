// SPDX-License-Identifier: Apache-2.0

// Package plugin is the scheduler plugin Tandem. For each node it predicts the kubelet's verdict on the pod
// (Filter), and rates the node's devices for the pod (Score).
//
// The plugin has no state of its own. A node's holdings are in its NodeTopology object, which is parsed when
// the informer receives it. The framework's NodeInfo has the pods that the scheduler has sent to the node
// since, without pods that preemption would evict. So the plugin subtracts the holdings of pods absent from
// the NodeInfo, and simulates the admission of pods without holdings, in every order in which the kubelet may
// see them; it rejects a node with too many orders. Results are cached until the object or the NodeInfo
// changes, and are shared by equal nodes with the same free devices.
//
// Filter and the scheduler's queueing hints read objects from one informer ([Objects]): a pod woken by a hint
// is filtered by the hint's version of the object or a newer one. A hint skips no pod that Filter would
// accept.
//
// Each node writes its own object. The plugin refuses invalid objects and recovers from panics; either way it
// ignores the node until the node writes another version, and reports the object with a log line, an Event of
// the Node and the metric scheduler_tandem_refused_objects.
//
// Nodes without an object are never filtered, nodes with an unknown kubelet policy only by counts of devices
// and required alignment.
//
// # State: source; bound; refresh; precedence
//
//   - objects: the API server; limits of an object for each node; watch and relist; the API server.
//   - refused objects, and the time of their Event: validation, or a panic; one per object; another version
//     of the object; the node is not filtered. The Event is repeated after 30 minutes.
//   - observations of nodes: object and NodeInfo; one per node; another version or generation; made anew.
//   - verdicts and offers: a pure function; 4,096 classes of 64 requests; all are dropped when full; cannot
//     differ.
package plugin

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
	"github.com/tandem-k8s/tandem/coordination/verdict"
)

// Name is the plugin's in the scheduler's configuration.
const Name = "Tandem"

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

// kind is a hash of an object without its holdings. Most nodes of a cluster are of one kind.
type kind [sha256.Size]byte

// kindOf computes the kind of a node.
func kindOf(spec *v1alpha1.Spec) (kind, error) {
	fixed := *spec
	fixed.Held, fixed.MemoryReserved, fixed.Summary = nil, nil, v1alpha1.Summary{}
	text, err := json.Marshal(fixed)
	if err != nil {
		return kind{}, fmt.Errorf("encode object: %w", err)
	}
	return sha256.Sum256(text), nil
}

// class has the cached results of nodes of one kind with the same free devices. A result never becomes stale:
// the class and the request are its complete input.
type class struct {
	verdicts memo[verdict.Verdict]
	offers   memo[offer]
}

// classKey identifies a class.
type classKey struct {
	kind  kind
	taken [sha256.Size]byte // of verdict.State.Same, with a bit for each device
}

// maxClasses limits the known classes. When all are forgotten, observations keep the class of their node.
const maxClasses = 1 << 12

// classes are the known classes of the cluster.
type classes struct {
	mu    sync.Mutex
	known map[classKey]*class
}

// find returns the class of a node of a kind, or a class of its own if the state cannot be compared.
func (c *classes) find(k kind, state *verdict.State) *class {
	taken := state.Same()
	if taken == "" {
		return &class{}
	}
	key := classKey{k, sha256.Sum256([]byte(taken))}
	c.mu.Lock()
	defer c.mu.Unlock()
	found := c.known[key]
	if found == nil {
		if c.known == nil || len(c.known) >= maxClasses {
			c.known = map[classKey]*class{}
		}
		found = &class{}
		c.known[key] = found
	}
	return found
}
