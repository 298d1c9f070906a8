// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tandem-k8s/tandem/coordination/asking"
	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// refusal is the reason to refuse an Allocate; the zero value is no refusal.
type refusal struct {
	said   string   // one sentence for all readers of the pod, without the names of different pods
	owners []string // holders of the missing devices, for the log and "tandem explain"
}

// full returns the sentence with the owners.
func (r refusal) full() string {
	if len(r.owners) == 0 {
		return r.said
	}
	return r.said + "; held by " + strings.Join(r.owners, ", ")
}

// maxSuspects limits the kubelet calls of an Allocate: the kubelet's limiter allows bursts of 10 for the
// whole node.
const maxSuspects = 8

// findConflict returns the refusal for allocated devices if a different pod holds a device now: the kubelet
// is handing out the device twice (kubernetes PR 137534). The holders of the last question are no proof: they
// can be outdated, and containers of a pod share devices. The suspected pods are therefore read with Get,
// which is safe during an Allocate. Get shows no plain init containers, whose devices go to the next
// container of their pod. If the kubelet does not answer before ctx is done, the container keeps the devices,
// and an error is logged.
func (r *reader) findConflict(
	ctx context.Context, before *state, now time.Time, name string, ids []string, o *observation,
) refusal {
	if elsewhere := r.findElsewhere(ctx, before, name, ids, o); elsewhere.said != "" {
		return elsewhere
	}
	for _, s := range before.suspects(name, ids, now) {
		view, err := r.Get(ctx, s.pod)
		if err != nil {
			if s.owner {
				r.Log.Error("duplicate allocation not ruled out; allocating the device",
					"resource", name, "devices", ids,
					"owner", s.pod.Namespace+"/"+s.pod.Name, "error", err)
			}
			continue
		}
		if holder, id, held := view.HolderOf(name, ids); held {
			return refusal{fmt.Sprintf("refuse %s %s: another pod has it; create this pod again and it gets another "+
				"device (the kubelet gave the device out a second time, kubernetes PR 137534)", name, id),
				[]string{holder.String()}}
		}
	}
	return refusal{}
}

// findElsewhere returns the refusal for allocated devices that a container has under another resource name,
// by the kubelet's checkpoint and the node's pods as read now. The kubelet does not compare devices of two
// names, so that no call of the kubelet proves the end of the holder.
func (r *reader) findElsewhere(
	ctx context.Context, before *state, name string, ids []string, o *observation,
) refusal {
	held, id, found := before.elsewhere(o, name, ids)
	if found && !o.answer.IsKnown() {
		o.answer = kubelet.Read(r.readRequests(ctx))
		held, id, found = before.elsewhere(o, name, ids)
	}
	if !found {
		return refusal{}
	}
	return refusal{
		fmt.Sprintf("refuse %s %s: another container has it as %s; create this pod again and it gets another "+
			"device", name, id, held.Resource), []string{ownerName(held.Holder)},
	}
}

// elsewhere returns the first of several devices with a holder under another resource name, by an
// observation. Without a checkpoint nothing is proven, nor by Allocates that the checkpoint lacks: the
// kubelet may have rejected their pod.
func (s *state) elsewhere(
	o *observation, name string, ids []string,
) (held holders.Held, id string, found bool) {
	if !o.checkpoint.IsKnown() {
		return held, "", false
	}
	sources := o.sources(s, asking.Question{})
	sources.Allocates = nil
	all, _ := holders.Find(sources)
	units := all.ByUnit(s.resources.UnitOf)
	for _, id := range ids {
		if held, found := units.Elsewhere(name, id); found {
			return held, id, true
		}
	}
	return holders.Held{}, "", false
}

// suspect is a possible holder of devices allocated to a different pod.
type suspect struct {
	pod   kubelet.Pod
	owner bool // a known holder at the last question
}

// suspects returns the holders of devices by the last question, without the pod of their plan. A plan for
// different devices proves nothing: the plan can belong to the pod before, and be fulfilled.
func (s *state) suspects(name string, ids []string, now time.Time) []suspect {
	var found []suspect
	open := s.open.allocated()
	add := func(pod kubelet.Pod, owner bool) {
		if i := slices.IndexFunc(found, func(s suspect) bool { return s.pod == pod }); i >= 0 {
			found[i].owner = found[i].owner || owner
		} else if len(found) < maxSuspects {
			found = append(found, suspect{pod, owner})
		}
	}
	for _, id := range ids {
		switch h := s.books().held.Of(name, id); {
		case h == nil:
		case h.Pod != (kubelet.Pod{}):
			add(h.Pod, true)
		case open != nil && open.HasAny(kubelet.Devices{name: {id}}):
			for _, pod := range open.Pods {
				add(pod, false)
			}
		}
	}
	if s.open.live(now).keeps(name, ids) && s.open.container.Owner != nil {
		found = slices.DeleteFunc(found, func(f suspect) bool { return f.pod == s.open.container.Owner.Pod })
	}
	return found
}
