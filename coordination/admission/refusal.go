package admission

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tandem-k8s/tandem/coordination/kubelet"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/ledger"
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
	if !d.requires(g.holder) || g.guessed() {
		return refusal{}
	}
	pairs := d.pairsOf(g.holder, g.sure())
	if p := g.plan; pairs == nil && p != nil && p.choice != nil && p.asker != nil && p.asker.Exact {
		pairs = p.choice.Pairs
	}
	apart := slices.IndexFunc(pairs, func(p placement.Pair) bool { return !p.Distance.Level.SameSwitch() })
	if apart < 0 {
		return refusal{}
	}
	return d.refusal(pairs, pairs[apart], fmt.Sprintf("%d %s %s", len(g.ids), g.name, strings.Join(g.ids, ", ")),
		g.holder)
}

// requires reports whether alignment is required of an allocation's container, whichever it is of those that
// it can be.
func (d *deciding) requires(a *ledger.Allocation) bool {
	switch {
	case a.Recipient == nil:
		return d.alignment == intent.Required
	case !a.Recipient.Exact:
		return false
	default:
		return cmp.Or(a.Recipient.Alignment, d.alignment) == intent.Required
	}
}

// pairsOf are those of the devices of an allocation; nil while it is not known to be complete. Sure is
// whether it is known to be one container's.
func (d *deciding) pairsOf(a *ledger.Allocation, sure bool) []placement.Pair {
	l := d.ledger
	gpus, vfs := l.LatestOf(a, device.GPU), l.LatestOf(a, device.VF)
	switch {
	case a.Recipient != nil && !l.Complete(a):
		return nil
	case a.Recipient == nil &&
		(!sure || len(gpus) == 0 || len(vfs) == 0 || len(vfs) < len(gpus) && len(l.OfKind(device.VF)) > 1):
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
	pairs []placement.Pair, apart placement.Pair, what string, a *ledger.Allocation,
) refusal {
	free, all, owners := d.vfsNear(apart.GPU.Address, a)
	sentence := fmt.Sprintf("refuse %s: alignment is required and only %d of %d pairs can be on one switch: "+
		"GPU %s and VF %s are %s apart; below switch %s %d of %d VFs are free",
		what, placement.Together(pairs), len(pairs), apart.GPU.Address, apart.VF.Address, apart.Distance.Level,
		d.tree.Switch(apart.GPU.Address), free, all)
	if len(owners) > 0 {
		sentence += ", the rest is held"
	}
	return refusal{said: sentence + "; " + d.whoRequires(), owners: owners}
}

// whoRequires tells whether the administrator wants pairs on one switch each, or the pod alone.
func (d *deciding) whoRequires() string {
	if d.alignment == intent.Required {
		return fmt.Sprintf("the plugins' flag --alignment=%s asks that of every pod", intent.Required)
	}
	return fmt.Sprintf("without annotation %s: %s the pod would start", intent.AlignmentKey, intent.Required)
}

// vfsNear counts the VFs on one switch with a GPU, and says who holds those that are not free, but for an
// allocation's own.
func (d *deciding) vfsNear(gpu topology.Address, own *ledger.Allocation) (free, all int, owners []string) {
	l := d.ledger
	for _, r := range l.OfKind(device.VF) {
		for id, vf := range r.Devices {
			if !d.tree.Distance(gpu, vf.Address).Level.SameSwitch() {
				continue
			}
			all++
			switch held := l.Holder(r.Name, id); {
			case l.IsFree(r.Name, id) && vf.Healthy:
				free++
			case held != nil && held != own:
				owners = append(owners, held.OwnerName())
			}
		}
	}
	slices.Sort(owners)
	return free, all, slices.Compact(owners)
}

// maxSuspects bounds the pods that one Allocate asks the kubelet about: its limiter allows 10 calls at once,
// to the whole node.
const maxSuspects = 8

// conflict says why a container must not have devices that the kubelet is giving it: another pod has one of
// them at this moment, so that the kubelet is handing it out twice (kubernetes PR 137534). The ledger alone
// does not decide: it can be behind, and the containers of one pod share devices. The kubelet is asked about
// the pods that the ledger thinks of, with Get, which is safe while an Allocate is in flight. It shows no
// plain init containers, whose devices go to the next container of their pod. Where it cannot be asked before
// ctx is done the container gets the devices, and the log has an error.
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
			return refusal{fmt.Sprintf("refuse %s %s: another pod has it and the kubelet gave it out a second time "+
				"(kubernetes PR 137534); create this pod again and it gets another device", name, id),
				[]string{holder.String()}}
		}
	}
	return refusal{}
}

// suspect is a pod that can hold devices that are being given to somebody else.
type suspect struct {
	pod   kubelet.Pod
	owner bool // PodResources has shown it with one of them
}

// suspects lists the pods that hold devices as far as the ledger knows, other than the one that they were
// planned for. A plan for other devices says nothing: it can be that of the pod before, which has been given
// all of it.
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
		switch a := s.ledger.Holder(name, id); {
		case a == nil:
		case a.Owner != nil:
			add(a.Owner.Pod, true)
		default:
			for _, pod := range a.Candidates {
				add(pod, false)
			}
		}
	}
	if p := s.plan.live(now); p.keeps(name, ids) && p.holder.Owner != nil {
		found = slices.DeleteFunc(found, func(s suspect) bool { return s.pod == p.holder.Owner.Pod })
	}
	return found
}
