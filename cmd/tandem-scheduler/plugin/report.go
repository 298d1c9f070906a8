// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"
)

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
