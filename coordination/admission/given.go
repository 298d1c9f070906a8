package admission

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/tandem-k8s/tandem/coordination/asking"

	"github.com/tandem-k8s/tandem/coordination/bounded"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/ledger"
	"github.com/tandem-k8s/tandem/coordination/pairs"
)

// given is the container that got the newest Allocate, and all that the kubelet has given it. A pairs file is
// asked for with the VFs, and is complete when the GPUs are there too, whichever comes first: whoever reports
// the last half has it written before the kubelet gets its answer, and so before the container starts.
type given struct {
	holder  *ledger.Allocation
	before  *ledger.Allocation // see inPairOrder
	devices kubelet.Devices    // in the order in which the container lists them
	files   []string           // pairs files that it asked for
	vfs     []pairs.VF         // what they say of its VFs

	newest   allocate
	at       time.Time         // when that was
	to       *ledger.Recipient // nil where no source of intent told
	foreseen bool              // it fulfilled a plan, so that the holder's candidates are right
	refused  bool              // the container was refused after it: nothing follows
}

// allocate is an Allocate, and whom the kubelet's checkpoint showed with its devices at that time. As soon as
// it shows anybody else the kubelet is done with the container.
type allocate struct {
	Resource string   `json:"resource,omitempty"`
	IDs      []string `json:"ids,omitempty"`
	Holders  []string `json:"holders,omitempty"`
	Known    bool     `json:"known,omitempty"`
}

// progress tells how far the kubelet is with the container.
func (g *given) progress(now kubelet.Checkpoint, err error) asking.Progress {
	switch {
	case g.refused:
		return asking.Complete
	case !g.newest.Known || err != nil:
		return asking.Unknown
	case slices.Equal(g.newest.Holders, now.Holders(g.newest.Resource, g.newest.IDs)):
		return asking.Open
	default:
		return asking.Complete
	}
}

// container names the container that a checkpoint shows with the newest Allocate and did not before, "" for
// none.
func (a allocate) container(now kubelet.Checkpoint) (uid, name string) {
	for _, holder := range now.Holders(a.Resource, a.IDs) {
		if !slices.Contains(a.Holders, holder) {
			uid, name, _ = strings.Cut(holder, "/")
			return uid, name
		}
	}
	return "", ""
}

// reached is the progress of the container of the newest Allocate. Once the kubelet is done with it the
// checkpoint tells its name.
func (d *deciding) reached(now kubelet.Checkpoint, err error) asking.Progress {
	if errors.Is(err, bounded.ErrHangs) {
		d.warn("judge who asks without the kubelet's checkpoint", "error", err)
	}
	reached, newest := d.given.progress(now, err), d.ledger.Newest()
	if reached == asking.Complete && newest != nil && newest.Container == "" {
		if uid, name := d.given.newest.container(now); name != "" {
			newest.UID, newest.Container = uid, name
		}
	}
	return reached
}

// giveUp takes note that nothing follows for the container of the newest Allocate where the kubelet has
// failed its pod meanwhile, nor for that of the plan, where it is known that it is gone.
func (d *deciding) giveUp(evidence *asking.Evidence, gone bool) {
	if !gone && !evidence.GivenUp(d.given.to) {
		return
	}
	for _, a := range d.ledger.Allocations() {
		if a.Recipient.Is(d.given.to) || gone && a == d.plan.holder {
			evidence.Forget(a)
		}
	}
	d.endPlan(Dropped)
	d.given.refused = true
	d.progress, evidence.Progress = asking.Complete, asking.Complete
}

// recent reports whether the newest Allocate was so fresh when a question came that it can still be the same
// container's.
func (s *state) recent(asked time.Time) bool { return asked.Sub(s.given.at) < asking.FollowWindow }

// goesOn reports whether devices are given to the same container as those before: the kubelet is not done
// with it, and either the ledger holds them together or they were given without a question.
func (d *deciding) goesOn(reached asking.Progress, a *ledger.Allocation, name string) bool {
	if d.given.devices == nil || reached == asking.Complete || len(d.given.devices[name]) > 0 {
		return false
	}
	for other, ids := range d.given.devices {
		for _, id := range ids {
			if d.ledger.Holder(other, id) != a {
				return reached == asking.Open && !d.given.foreseen
			}
		}
	}
	return true
}
