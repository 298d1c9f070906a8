// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
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

// findConflict returns the refusal for allocated devices if a different pod holds a device now, and adds the
// pods to the observation if it reads them. The kubelet is handing out the device twice (kubernetes PR
// 137534). The holders of the last question are no proof: they can be outdated, and containers of a pod share
// devices. The suspected pods are therefore read with Get, which is safe during an Allocate. Get shows no
// plain init containers, whose devices go to the next container of their pod. If the kubelet does not answer
// before ctx is done, the container keeps the devices, and an error is logged.
func (r *reader) findConflict(
	ctx context.Context, before *state, now time.Time, resource string, ids []string, o *observation,
) refusal {
	if elsewhere := r.findElsewhere(ctx, before, resource, ids, o); elsewhere.said != "" {
		return elsewhere
	}
	for _, s := range before.suspects(resource, ids, now) {
		view, err := r.Kubelet.Get(ctx, s.pod)
		if err != nil {
			if s.owner {
				r.Log.Error("duplicate allocation not ruled out; allocating the device",
					"resource", resource, "devices", ids,
					"owner", s.pod.Namespace+"/"+s.pod.Name, "error", err)
			}
			continue
		}
		if holder, id, held := view.HolderOf(resource, ids); held {
			return refusal{fmt.Sprintf("refuse %s %s: another pod has it; create this pod again and it gets another "+
				"device (the kubelet gave the device out a second time, kubernetes PR 137534)", resource, id),
				[]string{holder.String()}}
		}
	}
	return refusal{}
}

// findElsewhere returns the refusal for allocated devices that a container has under another resource name,
// by the kubelet's checkpoint and the node's pods as read now, and by the last List. The kubelet does not
// compare devices of two names, so that no other call of the kubelet proves the end of the holder.
func (r *reader) findElsewhere(
	ctx context.Context, before *state, resource string, ids []string, o *observation,
) refusal {
	held, id, found := before.findElsewhereName(o, resource, ids)
	if found && !o.pods.IsKnown() {
		o.pods = kubelet.Read(r.Pods.Pods(ctx))
		held, id, found = before.findElsewhereName(o, resource, ids)
	}
	if !found {
		return refusal{}
	}
	return refusal{
		fmt.Sprintf("refuse %s %s: another container has it as %s; create this pod again and it gets another "+
			"device", resource, id, held.Resource), []string{ownerName(held.Holder)},
	}
}

// findElsewhereName returns the first of several devices with a holder under another resource name, by an
// observation. Without a checkpoint nothing is proven, nor by Allocates that the checkpoint lacks: the
// kubelet may have rejected their pod.
func (s *state) findElsewhereName(
	o *observation, resource string, ids []string,
) (held holders.Held, id string, found bool) {
	if !o.checkpoint.IsKnown() {
		return held, "", false
	}
	sources := o.sources(s, nil)
	sources.Allocates = nil
	all := holders.Find(sources).Holders
	units := all.ByUnit(s.resources.UnitOf)
	for _, id := range ids {
		if held, found := units.Elsewhere(resource, id); found {
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
func (s *state) suspects(resource string, ids []string, now time.Time) []suspect {
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
		switch h := s.books().holders.Of(resource, id); {
		case h == nil:
		case h.Pod != (kubelet.Pod{}):
			add(h.Pod, true)
		case open != nil && open.Devices.HasAny(kubelet.Devices{resource: {id}}):
			for _, pod := range open.Pods {
				add(pod, false)
			}
		}
	}
	if s.open.live(now).isFor(resource, ids) && s.open.Container.Owner != nil {
		found = slices.DeleteFunc(found, func(f suspect) bool { return f.pod == s.open.Container.Owner.Pod })
	}
	return found
}

// findMisalignment returns the refusal for a grant if the pod requires alignment and a pair is not on a
// single switch. The container is refused when complete, or as soon as the best plan for the rest is known to
// be insufficient; never on a guess.
func findMisalignment(b *books, g grant, alignment intent.Alignment) refusal {
	if !isRequired(g.container, alignment) || g.isGuess() {
		return refusal{}
	}
	pairs := pairsOf(b, g.container, g.isSure())
	if p := g.plan; pairs == nil && p != nil && p.choice != nil && !p.Predicted && g.container.Asker != nil &&
		g.container.Asker.Exact {
		pairs = p.choice.Pairs
	}
	apart := slices.IndexFunc(pairs, func(p placement.Pair) bool { return !p.Distance.Level.Direct() })
	if apart < 0 {
		return refusal{}
	}
	devices := fmt.Sprintf("%d %s %s", len(g.ids), g.resource, strings.Join(g.ids, ", "))
	return newMisalignment(b, pairs, pairs[apart], devices, g.container, alignment)
}

// isRequired reports whether alignment is required for each candidate of a container. Alignment is the
// default for pods.
func isRequired(c *recipient, alignment intent.Alignment) bool {
	if c.Asker == nil {
		return alignment == intent.Required
	}
	permits := func(own intent.Alignment) bool { return cmp.Or(own, alignment) != intent.Required }
	return !slices.ContainsFunc(c.Asker.Alignments(), permits)
}

// newMisalignment returns a refusal with the separated pair, the switch of its GPU, and the free VFs there.
func newMisalignment(
	b *books, pairs []placement.Pair, apart placement.Pair, devices string, c *recipient,
	alignment intent.Alignment,
) refusal {
	near, owners := describeNear(b, apart.GPU.Address, c)
	sentence := fmt.Sprintf("refuse %s: alignment is required and only %d of %d pairs can be on one switch: "+
		"GPU %s and VF %s are %s apart; %s", devices, placement.Together(pairs), len(pairs), apart.GPU.Address,
		apart.VF.Address, apart.Distance.Level, near)
	origin := intent.Relaxation // the pod alone requires alignment
	if alignment == intent.Required {
		origin = fmt.Sprintf("the plugins' flag --alignment=%s asks that of every pod", intent.Required)
	}
	return refusal{sentence + " (" + origin + ")", owners} // the kubelet appends ", which is unexpected"
}

// describeNear describes the VFs on the switch of a GPU, and returns the holders besides a container.
func describeNear(b *books, gpu topology.Address, own *recipient) (near string, owners []string) {
	free, all := 0, 0
	for _, r := range b.resources.OfKind(device.VF) {
		for id, vf := range r.Devices {
			if !b.tree.Distance(gpu, vf.Address).Level.Direct() {
				continue
			}
			all++
			holder := b.holders.Of(r.Name, id)
			if vf.Healthy && holder == nil {
				free++
			}
			if holder != nil && !own.Has(r.Name, id) {
				owners = append(owners, ownerName(holder))
			}
		}
	}
	slices.Sort(owners)
	owners = slices.Compact(owners)
	name := b.tree.Switch(gpu)
	if !topology.IsSwitch(name) {
		return fmt.Sprintf("the GPU is on no switch (%s)", name), owners
	}
	near = fmt.Sprintf("below switch %s %d of %d VFs are free", name, free, all)
	if len(owners) > 0 {
		near += ", the rest is held"
	}
	return near, owners
}
