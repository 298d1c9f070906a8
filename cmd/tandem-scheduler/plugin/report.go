// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// reportAgain is how often a node is told: Events are deleted after an hour.
const reportAgain = 30 * time.Minute

// report says on the node, as an Event, why its object, or a part of it, is left out of account. It does so
// whenever a pod is tried there, but not more often than every reportAgain for a version of the object: only
// the scheduler that schedules tries pods, and an Event that is gone comes again. Schedulers have the right
// to write Events.
func (p *Plugin) report(node *v1.Node, o *published, reason, effect string, cause error) {
	now, last := time.Now(), o.reported.Load()
	if p.events == nil || last != 0 && now.Sub(time.Unix(0, last)) < reportAgain ||
		!o.reported.CompareAndSwap(last, now.UnixNano()) {
		return
	}
	p.events.Eventf(node, nil, v1.EventTypeWarning, reason, "Scheduling",
		"Version %s of the NodeTopology object: %s: %.500s", o.ResourceVersion, effect, cause.Error())
}
