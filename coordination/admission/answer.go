// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// answerQuestion answers a question in four steps: holders, container, free devices, choice. The choice
// becomes the plan. A rule for shared devices comes before near pairs, as with NVIDIA's own plugin, unless
// they are required; alignment is the default for pods.
func (tx *transaction) answerQuestion(
	q *api.PreferRequest, o observation, alignment intent.Alignment,
) (ids []string, reason string, err error) {
	tx.view = o.list()
	tx.warnHung(o, "judge who asks without the kubelet's checkpoint")
	container, known := tx.updateHolders(q, o).identifyRecipient(q)
	tx.listing = tx.listing.With(o.list())
	if container.ID == 0 {
		container.ID = tx.nextID()
	}
	b := tx.books()
	offer := newOffer(b, q, &container)
	tx.warnHeld(b, q, offer)
	request, remark := newRequestBuilder(b, &o, q, &container, offer).buildRequest()
	known.Remark = remark
	choice, err := placement.Choose(tx.tree, request)
	if err != nil {
		return nil, "", fmt.Errorf("choose %d of %s: %w", q.GetSize(), q.GetResource(), err)
	}
	apart := placement.Together(choice.Pairs) < len(choice.Pairs)
	if apart && isRequired(&container, alignment) && b.hasRules() {
		free, _ := newRequestBuilder(b.withoutRules(), &o, q, &container, offer).buildRequest()
		request, choice = nearer(tx.tree, request, choice, free)
	}
	choice.Reason += placement.Named("failed", b.failedFunctions())
	p := tx.makePlan(&choice, q, &container, o)
	said := known.For(tx.resources[q.GetResource()].Kind)
	tx.observe(Answered(known.Source))
	decided := newDecision(&api.Decision{
		TimeUnixNano: o.asked.UnixNano(), TookNano: int64(tx.now().Sub(o.asked)), Asked: true,
		Known: said, Resource: q.GetResource(), Size: q.GetSize(),
		Available: uint32(len(q.GetAvailable())), MustInclude: q.GetMustInclude(),
		Chosen: p.Devices[q.GetResource()], Planned: deviceLists(p.otherDevices(q.GetResource())),
		Pairs: encodePairs(choice.Pairs), Reason: choice.Reason,
		Container: encodeOwner(container.Likely(), container.PodUID()), PodUid: container.PodUID(),
	})
	tx.question = &decisionInput{decision: decided, tree: tx.tree, request: request, choice: choice}
	return p.Devices[q.GetResource()], said + "; " + choice.Reason, nil
}

// nearer returns the choice of another request, if it has more pairs on one switch than a choice.
func nearer(
	tree *topology.Tree, request placement.Request, choice placement.Choice, other placement.Request,
) (placement.Request, placement.Choice) {
	free, err := placement.Choose(tree, other)
	if err != nil || placement.Together(free.Pairs) <= placement.Together(choice.Pairs) {
		return request, choice
	}
	return other, free
}

// warnHung reports the consequence of a checkpoint that was not read in time.
func (tx *transaction) warnHung(o observation, consequence string) {
	if _, err := o.checkpoint.Get(); errors.Is(err, system.ErrHangs) {
		tx.warn(consequence, "error", err)
	}
}

// updateHolders updates the state from an observation, holders included, and returns the evidence for the
// asker.
func (tx *transaction) updateHolders(q *api.PreferRequest, o observation) *evidence {
	e := o.evidence(tx.state)
	tx.endRejected(e, noneGone)
	if !e.Checkpoint.IsKnown() && e.View.IsKnown() { // List shows all devices before the latest container's
		tx.allocates = slices.DeleteFunc(slices.Clone(tx.allocates), func(a holders.Allocate) bool {
			return e.Newest == nil || !device.SameSet(a.IDs, e.Newest.Devices[a.Resource])
		})
	}
	found := holders.Find(o.sources(tx.state, q))
	tx.allocates, tx.known, tx.unlisted = found.Allocates, found.Known, found.Unlisted
	tx.hold(found.Holders)
	e.Holders = found.Holders
	return e
}

// warnHeld reports offered devices with a different holder.
func (tx *transaction) warnHeld(b *books, q *api.PreferRequest, o offer) {
	for _, id := range o.inUse {
		tx.warn("kubelet offers a device that is in use", "resource", q.GetResource(), "device", id, "owner",
			ownerName(b.holders.Of(q.GetResource(), id)))
	}
}

// makePlan makes a choice the plan for the container of a question.
func (tx *transaction) makePlan(
	choice *placement.Choice, q *api.PreferRequest, container *recipient, o observation,
) *plan {
	p := newPlan(choice, tx.resources, q, *container)
	_, unknown := o.manager.Get()
	p.Predicted = unknown != nil && len(tx.resources.Nodes(q.GetResource(), q.GetAvailable())) == 0
	p.Expires = tx.now().Add(planTTL)
	tx.openFor(container, p, o.recorded())
	return p
}

// useChosen adds the devices chosen by a scheduler to the halves, as far as available, and returns a remark
// for people.
func useChosen(b *books, a *asker, all []resourceHalf) string {
	if len(a.Chosen) == 0 {
		return ""
	}
	taken := 0
	var missing []string
	for _, name := range a.Chosen {
		n, held := moveChosen(name, all)
		taken += n
		if n > 0 || held || !areIncomplete(all) {
			continue
		}
		if why := whyUnavailable(b, name, a, all); why != "" {
			missing = append(missing, name+" "+why)
		}
	}
	remark := fmt.Sprintf("%d devices as the scheduler chose", taken)
	if len(missing) > 0 {
		remark += "; impossible: " + strings.Join(missing[:min(len(missing), maxMissing)], ", ")
	}
	if more := len(missing) - maxMissing; more > 0 {
		remark += fmt.Sprintf(" and %d more", more)
	}
	return remark
}

// maxMissing limits the devices named in a remark: a pod can choose some hundred.
const maxMissing = 4

// moveChosen moves the free devices of a name to the held devices of their half, up to its count. The second
// result reports whether the container holds a device of the name already.
func moveChosen(name string, all []resourceHalf) (moved int, held bool) {
	address, err := topology.ParseAddress(name)
	named := func(d placement.Device) bool { return d.ID == name || err == nil && d.Address == address }
	for i := range all {
		half := &all[i].half
		held = held || slices.ContainsFunc(half.Held, named)
		half.Free = slices.DeleteFunc(half.Free, func(d placement.Device) bool {
			if !named(d) || len(half.Held) >= half.Count {
				return false
			}
			half.Held = append(half.Held, d)
			moved++
			return true
		})
	}
	return moved, held
}

// areIncomplete reports whether any half has fewer held devices than its count.
func areIncomplete(all []resourceHalf) bool {
	return slices.ContainsFunc(all, func(h resourceHalf) bool { return len(h.half.Held) < h.half.Count })
}

// whyUnavailable returns the reason why a chosen device is unavailable; "" if held by the same pod.
func whyUnavailable(b *books, name string, a *asker, all []resourceHalf) string {
	address, err := topology.ParseAddress(name)
	for _, h := range all {
		for id, device := range h.resource.Devices {
			if id != name && (err != nil || device.Address != address) {
				continue
			}
			switch held := b.holders.Of(h.resource.Name, id); {
			case held != nil && held.UID == a.UID:
				return ""
			case held != nil:
				return "is held by " + ownerName(held)
			case !device.Healthy:
				return "is unhealthy"
			default:
				return "is not among what the kubelet offers"
			}
		}
	}
	return "is no device of a resource that the container asks for"
}

// planTTL is the lifetime of a plan. The kubelet asks for the second half of a container within milliseconds
// of the first; an admission that fails in between leaves its plan behind.
const planTTL = 2 * time.Second

// plan is the answer to the latest question, with the devices reserved for the halves of the request without
// a question so far.
type plan struct {
	Devices   map[string][]string `json:"devices"`             // by resource, in the order of the pairs
	Resource  string              `json:"resource"`            // of the answered question
	Anew      bool                `json:"anew,omitempty"`      // without devices of an init container
	Predicted bool                `json:"predicted,omitempty"` // the NUMA nodes are a prediction
	// chosen from more on the same NUMA nodes: the kubelet takes these only as the answer
	FromMore bool      `json:"chosen,omitempty"`
	Expires  time.Time `json:"expires"`

	choice *placement.Choice // origin of all devices; not saved

	// the reservation of the container's first question, for statistics: the plan of the next question replaces
	// the devices and keeps the promise
	promised map[string][]string // by resource
	until    time.Time
}

// newPlan returns the plan for a choice: the answer to the question, and the rest of the request.
func newPlan(
	choice *placement.Choice, set device.Resources, q *api.PreferRequest, container recipient,
) *plan {
	p := &plan{
		Devices:  map[string][]string{},
		Resource: q.GetResource(),
		Anew:     len(q.GetMustInclude()) == 0,
		choice:   choice,
	}
	offered := map[string]bool{}
	for _, id := range slices.Concat(q.GetAvailable(), q.GetMustInclude()) {
		offered[id] = true
	}
	for _, chosen := range slices.Concat(choice.GPUs, choice.VFs) {
		resource := q.GetResource()
		if !offered[chosen.ID] {
			resource = set.OfDevice(chosen.ID, q.GetResource())
		}
		if resource != "" {
			p.Devices[resource] = append(p.Devices[resource], chosen.ID)
		}
	}
	maps.DeleteFunc(p.Devices, func(resource string, ids []string) bool {
		isNew := func(id string) bool { return !container.Has(resource, id) }
		return resource != q.GetResource() && !slices.ContainsFunc(ids, isNew)
	})
	answer := p.Devices[q.GetResource()]
	isAnswer := func(id string) bool { return slices.Contains(answer, id) }
	rest := slices.DeleteFunc(slices.Clone(q.GetAvailable()), isAnswer)
	p.FromMore = len(rest) > 0 && set.SameNodes(kubelet.Devices{q.GetResource(): answer}, q.GetResource(), rest)
	return p
}

// otherDevices returns the planned devices of all resources except one.
func (p *plan) otherDevices(resource string) map[string][]string {
	others := maps.Clone(p.Devices)
	delete(others, resource)
	return others
}

// isFor reports whether the plan reserves exactly these devices of a resource.
func (p *plan) isFor(resource string, ids []string) bool {
	return p != nil && device.SameSet(p.Devices[resource], ids)
}

// clone returns a copy with maps of its own.
func (p *plan) clone() *plan {
	if p == nil {
		return nil
	}
	next := *p
	next.Devices, next.promised = maps.Clone(p.Devices), maps.Clone(p.promised)
	return &next
}
