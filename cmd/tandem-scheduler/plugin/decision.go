// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"maps"
	"sync/atomic"
	"time"

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

// maxRequests limits the results of a memo. A full memo is cleared.
const maxRequests = 64

// memo caches results by request. Lookups take no lock: each new result replaces the map by a larger copy.
type memo[T any] struct{ known atomic.Pointer[map[request]T] }

// find returns a cached result.
func (m *memo[T]) find(r request) (result T, known bool) {
	if all := m.known.Load(); all != nil {
		result, known = (*all)[r]
	}
	return result, known
}

func (m *memo[T]) remember(r request, result T) {
	for {
		before, after := m.known.Load(), map[request]T{}
		if before != nil && len(*before) < maxRequests {
			after = maps.Clone(*before)
		}
		after[r] = result
		if m.known.CompareAndSwap(before, &after) {
			return
		}
	}
}

// reportAgain is the interval of repeated reports: the API server deletes Events after an hour.
const reportAgain = 30 * time.Minute

// subject is a node with the reason of an Event.
type subject struct{ node, reason string }

// report writes an Event of the Node with the reason why the node's object, or a part of it, is ignored. It
// does so when a pod is tried on the node, at most once per reportAgain, whatever versions of the object come
// meanwhile. Only the leading scheduler tries pods. Schedulers have permission to write Events.
func (p *Plugin) report(node *v1.Node, o *published, reason, effect string, cause error) {
	if p.events == nil || !p.isDue(subject{node.Name, reason}) {
		return
	}
	p.events.Eventf(node, nil, v1.EventTypeWarning, reason, "Scheduling",
		"Version %s of the NodeTopology object: %s: %.500s", o.ResourceVersion, effect, cause.Error())
}

// isDue reports whether an Event was not written for reportAgain, and remembers it as written now.
func (p *Plugin) isDue(of subject) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if last, written := p.reported[of]; written && now.Sub(last) < reportAgain {
		return false
	}
	if p.reported == nil {
		p.reported = map[subject]time.Time{}
	}
	maps.DeleteFunc(p.reported, func(_ subject, last time.Time) bool { return now.Sub(last) >= reportAgain })
	p.reported[of] = now
	return true
}
