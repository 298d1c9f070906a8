// Package asking finds out for which container the kubelet asks for devices, or gives them.
//
// The kubelet does not say. It writes its device checkpoint once all resources of a container are allocated,
// before it turns to the next container. So a question belongs to the container of the newest Allocate if,
// and only if, the checkpoint still shows the devices of that Allocate with whom it showed them then
// (kubelet.ReadCheckpoint). That costs the kubelet nothing and is exact but for one case: where the kubelet
// fails a pod amid a container it does not write. Then nobody shows the pod any more (Evidence.GivenUp).
//
// Where a source of intent tells what the pods of the node want (package intent), the container itself is
// known: the one that lacks what is asked for, of the one pod that has not been admitted (asker.go).
//
// PodResources List shows the owners and which devices became free. It also shows every pod from just before
// its admission, so that without the checkpoint pods that are new since the last look still tell a new pod
// from the second half of the one before; only where that leaves two containers possible does the time since
// the last Allocate decide, and the log says so (observe.go).
package asking

import (
	"fmt"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/ledger"
)

// Progress tells whether the kubelet is done with a container.
type Progress int

// How far the kubelet is.
const (
	Unknown  Progress = iota
	Open              // the container's other resources come next
	Complete          // all its resources are allocated
)

// Question is a GetPreferredAllocation as the kubelet asks it, or an Allocate without one.
type Question struct {
	Resource string
	// free in the kubelet's eyes, on the NUMA nodes it chose; the must-include ones among them
	Available   []string
	MustInclude []string
	Size        int
}

// Offers reports whether the kubelet offers a device of an allocation to another container.
func (q Question) Offers(a *ledger.Allocation) bool {
	return slices.ContainsFunc(q.Available, func(id string) bool {
		_, has := a.Devices[q.Resource][id]
		return has && !slices.Contains(q.MustInclude, id)
	})
}

// Evidence is all that tells who asks. What it tells of who holds what goes into the ledger, and what a look
// has shown into Looked.
type Evidence struct {
	Ledger   *ledger.Ledger
	Looked   *Looked
	Progress Progress        // of the container of the newest Allocate
	Newest   kubelet.Devices // that Allocate
	Foreseen bool            // that Allocate was of what had been planned
	// it was so fresh when the question came that this can still be the same container's
	Recent   bool
	View     *kubelet.View       // a look at PodResources; nil where there was none
	Recorded *kubelet.Checkpoint // the kubelet's own record; nil where it cannot be read
	Answer   *intent.Answer      // nil where no source tells
}

// Asks finds who asks, and what that container was given already: an allocation to add to, new and empty for
// its first half. A source of intent knows best; without one it is the order of the questions that tells.
func (e *Evidence) Asks(q Question) (*ledger.Allocation, Knowledge) {
	if e.Answer != nil && e.View == nil {
		e.Bury()
		e.heal(q)
	}
	newest, why := e.following(q)
	known := Knowledge{Source: intent.Inference, Why: why}
	if e.View != nil {
		known.Source = intent.PodResources
	}
	holder := newest
	if e.Answer != nil {
		known.Asker = e.identify(q, e.narrow(e.candidates(q), newest), e.open(newest))
		if known.Asker == nil {
			known.Why += fmt.Sprintf(" (%s shows no container that lacks %d)", e.Answer.Source, q.Size)
		} else {
			holder = e.HolderOf(known.Asker, newest)
			known.Source, known.Why = e.Answer.Source, known.Asker.Half(holder)
		}
	}
	if holder == nil {
		holder = &ledger.Allocation{Looked: len(q.MustInclude) > 0}
	}
	if known.Asker == nil && holder == newest && holder.Owner == nil && !holder.Looked {
		holder.Guessed = true
	}
	known.Shown = e.View != nil && holder.Owner != nil && holder.ShownBy(*e.View, *holder.Owner)
	if holder.Owner == nil && holder.Candidates == nil {
		holder.Candidates = e.possible(known.Asker)
	}
	holder.Looked = holder.Looked || e.View != nil
	return holder, known
}

// Receives finds who is given devices without a question, after the container of an allocation; nil where no
// source of intent tells.
func (e *Evidence) Receives(q Question, before *ledger.Allocation) *Asker {
	if e.Answer == nil {
		return nil
	}
	return e.identify(q, e.candidates(q), e.open(before))
}
