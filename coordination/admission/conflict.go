package admission

import (
	"context"
	"fmt"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

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
	suspects := c.current().ledger.suspects(name, ids)
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
func (l *ledger) suspects(name string, ids []string) []suspect {
	var found []suspect
	add := func(pod kubelet.Pod, owner bool) {
		if i := slices.IndexFunc(found, func(s suspect) bool { return s.pod == pod }); i >= 0 {
			found[i].owner = found[i].owner || owner
		} else if len(found) < maxSuspects {
			found = append(found, suspect{pod, owner})
		}
	}
	for _, id := range ids {
		switch a := l.holders[name][id]; {
		case a == nil:
		case a.owner != nil:
			add(a.owner.Pod, true)
		default:
			for _, pod := range a.candidates {
				add(pod, false)
			}
		}
	}
	if l.planned(name, ids) && l.plan.holder.owner != nil {
		found = slices.DeleteFunc(found, func(s suspect) bool { return s.pod == l.plan.holder.owner.Pod })
	}
	return found
}
