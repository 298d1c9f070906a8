package admission

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tandem-k8s/tandem/coordination/asking"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// refusal is why a container must not have the devices that the kubelet gives it; the zero value is none.
type refusal struct {
	said   string   // one sentence for all who can read the pod: it names no other one
	owners []string // who has what it lacks, for the log and "tandem explain"
}

// full is the sentence with the owners.
func (r refusal) full() string {
	if len(r.owners) == 0 {
		return r.said
	}
	return r.said + "; held by " + strings.Join(r.owners, ", ")
}

// misaligned says why a container must not have the devices that it is being given: alignment is required of
// its pod, and not all its pairs are on one switch each. It is said when the container has all that it wants,
// or at once where that is known and the best plan for the rest does not do; never on a guess.
func (d *deciding) misaligned(g grant) refusal {
	if !d.requires(g.container) || g.guessed() {
		return refusal{}
	}
	pairs := d.pairsOf(g.container, g.sure())
	if p := g.plan; pairs == nil && p != nil && p.choice != nil && !p.predicted && p.container.Asker != nil &&
		p.container.Asker.Exact {
		pairs = p.choice.Pairs
	}
	apart := slices.IndexFunc(pairs, func(p placement.Pair) bool { return !p.Distance.Level.SameSwitch() })
	if apart < 0 {
		return refusal{}
	}
	return d.refusal(pairs, pairs[apart], fmt.Sprintf("%d %s %s", len(g.ids), g.name, strings.Join(g.ids, ", ")),
		g.container)
}

// requires reports whether alignment is required of a container, whichever it is of those that it can be.
func (d *deciding) requires(c *asking.Container) bool {
	switch {
	case c.Asker == nil:
		return d.alignment == intent.Required
	case !c.Asker.Exact:
		return false
	default:
		return cmp.Or(c.Asker.Alignment, d.alignment) == intent.Required
	}
}

// pairsOf are those of the devices of a container; nil while it is not known to be complete. Sure is whether
// all that it has is known to be one container's.
func (d *deciding) pairsOf(c *asking.Container, sure bool) []placement.Pair {
	gpus, vfs := d.resources.Held(c.Devices, device.GPU), d.resources.Held(c.Devices, device.VF)
	switch {
	case c.Asker != nil && !c.Complete(func(name string) bool { return d.resources[name] != nil }):
		return nil
	case c.Asker == nil && (!sure || len(gpus) == 0 || len(vfs) == 0 ||
		len(vfs) < len(gpus) && len(d.resources.OfKind(device.VF)) > 1):
		return nil // VFs of other resources may come
	}
	choice, err := placement.Choose(d.tree, placement.Request{
		GPUs: []placement.Half{device.All(gpus)}, VFs: []placement.Half{device.All(vfs)},
	})
	if err != nil {
		return nil
	}
	return choice.Pairs
}

// refusal names the pair that is apart, the switch of its GPU, and what is free there.
func (d *deciding) refusal(
	pairs []placement.Pair, apart placement.Pair, what string, c *asking.Container,
) refusal {
	free, all, owners := d.vfsNear(apart.GPU.Address, c)
	sentence := fmt.Sprintf("refuse %s: alignment is required and only %d of %d pairs can be on one switch: "+
		"GPU %s and VF %s are %s apart; below switch %s %d of %d VFs are free",
		what, placement.Together(pairs), len(pairs), apart.GPU.Address, apart.VF.Address, apart.Distance.Level,
		d.tree.Switch(apart.GPU.Address), free, all)
	if len(owners) > 0 {
		sentence += ", the rest is held"
	}
	return refusal{said: sentence + " (" + d.whoRequires() + ")", owners: owners}
}

// whoRequires tells whether the administrator wants pairs on one switch each, or the pod alone. It stands in
// brackets at the end of a refusal, to which the kubelet appends ", which is unexpected".
func (d *deciding) whoRequires() string {
	if d.alignment == intent.Required {
		return fmt.Sprintf("the plugins' flag --alignment=%s asks that of every pod", intent.Required)
	}
	return intent.Relaxation
}

// vfsNear counts the VFs on one switch with a GPU, and says who holds those that are not free, but for a
// container's own.
func (d *deciding) vfsNear(gpu topology.Address, own *asking.Container) (free, all int, owners []string) {
	for _, r := range d.resources.OfKind(device.VF) {
		for id, vf := range r.Devices {
			if !d.tree.Distance(gpu, vf.Address).Level.SameSwitch() {
				continue
			}
			all++
			if vf.Healthy && d.books().isFree(r.Name, id) {
				free++
			}
			owners = append(owners, d.books().names(r.Name, []string{id}, own)...)
		}
	}
	slices.Sort(owners)
	return free, all, slices.Compact(owners)
}

// maxSuspects bounds the pods that one Allocate asks the kubelet about: its limiter allows 10 calls at once,
// to the whole node.
const maxSuspects = 8

// conflict says why a container must not have devices that the kubelet is giving it: another pod has one of
// them at this moment, so that the kubelet is handing it out twice (kubernetes PR 137534). What the
// last question found does not decide: it can be behind, and the containers of one pod share devices. The
// kubelet is asked about the pods that had them then, with Get, which is safe while an Allocate is in flight.
// It shows no plain init containers, whose devices go to the next container of their pod. Where it cannot be
// asked before ctx is done the container gets the devices, and the log has an error.
func (c *Coordinator) conflict(ctx context.Context, name string, ids []string) refusal {
	suspects := c.current().suspects(name, ids, c.now())
	if len(suspects) == 0 {
		return refusal{}
	}
	for _, s := range suspects {
		view, err := c.Get(ctx, s.pod)
		if err != nil {
			if s.owner {
				c.Log.Error("cannot tell whether the kubelet gives a device out twice: give it",
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

// suspect is a pod that can hold devices that are being given to somebody else.
type suspect struct {
	pod   kubelet.Pod
	owner bool // it is known to have held one of them
}

// suspects lists the pods that hold devices as far as the last question found, other than the one that they
// were planned for. A plan for other devices says nothing: it can be that of the pod before, which has been
// given all of it.
func (s *state) suspects(name string, ids []string, now time.Time) []suspect {
	var found []suspect
	add := func(pod kubelet.Pod, owner bool) {
		if i := slices.IndexFunc(found, func(s suspect) bool { return s.pod == pod }); i >= 0 {
			found[i].owner = found[i].owner || owner
		} else if len(found) < maxSuspects {
			found = append(found, suspect{pod, owner})
		}
	}
	for _, id := range ids {
		switch h := s.books().holder(name, id); {
		case h == nil:
		case h.Pod != (kubelet.Pod{}):
			add(h.Pod, true)
		case s.given.container != nil && s.given.container.HasAny(kubelet.Devices{name: {id}}):
			for _, pod := range s.given.container.Pods {
				add(pod, false)
			}
		}
	}
	if p := s.plan.live(now); p.keeps(name, ids) && p.container.Owner != nil {
		found = slices.DeleteFunc(found, func(s suspect) bool { return s.pod == p.container.Owner.Pod })
	}
	return found
}
