// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// reportAgain is the interval of repeated reports: the API server deletes Events after an hour.
const reportAgain = 30 * time.Minute

// report writes an Event of the Node with the reason why the node's object, or a part of it, is ignored. It
// does so when a pod is tried on the node, at most once per reportAgain and version of the object. Only the
// leading scheduler tries pods. Schedulers have permission to write Events.
func (p *Plugin) report(node *v1.Node, o *published, reason, effect string, cause error) {
	now, last := time.Now(), o.reported.Load()
	if p.events == nil || last != 0 && now.Sub(time.Unix(0, last)) < reportAgain ||
		!o.reported.CompareAndSwap(last, now.UnixNano()) {
		return
	}
	p.events.Eventf(node, nil, v1.EventTypeWarning, reason, "Scheduling",
		"Version %s of the NodeTopology object: %s: %.500s", o.ResourceVersion, effect, cause.Error())
}
