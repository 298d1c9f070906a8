// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// grant is an Allocate with its recipient.
type grant struct {
	resource  string
	ids       []string
	progress  progress // of the open admission before
	asked     bool     // the kubelet asked for the devices
	plan      *plan    // fulfilled by the Allocate, nil for none
	planned   []string // the IDs in the order of the plan
	container *recipient
}

// isSure reports whether all devices of the container certainly belong to a single container: the kubelet's
// checkpoint shows unfinished allocation, or PodResources showed the devices at the question for the rest.
func (g grant) isSure() bool { return g.progress == progressOpen || g.isShown() }

// isShown reports whether PodResources showed the container's devices at the question for the rest.
func (g grant) isShown() bool { return g.plan != nil && g.container.Shown }

// isGuess reports whether the kubelet may have rejected the pod of the first half, without evidence.
func (g grant) isGuess() bool {
	return g.container.Asker == nil && g.container.Guessed && !g.isShown()
}

// recipient returns the name of the container, for people.
func (g grant) recipient() string {
	if c := g.container.Likely(); c != nil {
		return c.String()
	}
	return "not known yet"
}

// reason returns the reason for the container's pairs.
func (g grant) reason() string {
	if g.plan == nil || g.plan.choice == nil {
		return "the kubelet had no choice, or chose by itself"
	}
	return g.plan.choice.Reason
}

// takeDevices records an Allocate for its most likely container, which becomes the open one.
func (tx *transaction) takeDevices(a allocateInput) grant {
	o, resource, ids := a.observation, a.resource, a.ids
	e := o.evidence(tx.state)
	if o.pods.IsKnown() {
		found := holders.Find(o.sources(tx.state, nil))
		e.Holders, tx.known = found.Holders, found.Known
	}
	if !tx.open.proves(resource, ids, o.asked) {
		tx.endRejected(e, a.fateOf(tx.open))
	}
	g := grant{resource: resource, ids: ids, progress: e.Progress}
	tx.fulfilPromise(resource, ids)
	g.asked = tx.isAsked(resource, ids)
	if tx.open.allocated() != nil && e.Progress == progressComplete && !g.asked {
		tx.endAdmission() // the container did not request the rest
	}
	anew := false
	if p := tx.livePlan(); p != nil {
		anew = p.Resource == resource && p.Anew
		if p.isFor(resource, ids) {
			g.plan, g.planned = p, p.Devices[resource]
		}
	}
	g.container = recipientOf(tx.state, g, e)
	if g.container.ID == 0 {
		g.container.ID = tx.nextID()
	}
	tx.version++
	tx.recordAllocate(g.container, holders.Allocate{
		Resource: resource, IDs: slices.Clone(ids), Anew: anew, Recorded: o.recorded(), Life: o.life,
	})
	if tx.open != nil && tx.open.Container.ID != g.container.ID {
		tx.paired = tx.open.doubtedFiles(g, tx.resources)
		tx.endPlan()
		g.asked = false
	}
	if p := tx.livePlan(); p != nil {
		delete(p.Devices, resource) // fulfilled, or overruled
	}
	tx.open = tx.open.of(g.container)
	tx.open.at, tx.open.Recorded = tx.now(), o.recorded()
	return g
}

// isAsked reports whether the latest question was for as many devices of a resource, and has had no Allocate.
func (tx *transaction) isAsked(resource string, ids []string) bool {
	p := tx.livePlan()
	return p != nil && p.Resource == resource && len(p.Devices[resource]) == len(ids)
}

// recipientOf returns the container of an Allocate, the devices included: the container of the fulfilled
// plan; else the container identified by a request source; else the container of the open admission, unless
// complete; else a new container, with ID 0.
func recipientOf(s *state, g grant, e *evidence) *recipient {
	c := recipient{Unasked: true}
	n := e.Newest
	switch found := e.findAsker(&api.PreferRequest{Resource: g.resource, Size: uint32(len(g.ids))}); {
	case g.plan != nil:
		c = *s.open.Container
	case found != nil:
		c = e.containerOf(found, e.continued(g.resource))
		if c.ID == 0 && s.open != nil && s.open.Container.Asker.Is(found) {
			c.ID = s.open.Container.ID
		} else if c.ID == 0 {
			c.Unasked = true
		}
	case g.asked:
		c = *s.open.Container
	case n == nil || n.Owner != nil:
	case e.Progress == progressOpen && n.Lacks(g.resource) &&
		s.resources.SameNodes(n.Devices, g.resource, g.ids):
		c = *n
		c.Guessed = c.Guessed || c.Asker == nil && !(c.Looked && e.Recent)
	case e.Progress == progressUnknown && e.Recent && n.Devices.HasAny(kubelet.Devices{g.resource: g.ids}):
		c = *n // an app container takes over from its init container
	}
	c = c.WithDevices(g.resource, slices.Clone(g.ids))
	return &c
}

// orderDevices returns the allocated devices of a resource in pair order: the i-th GPU pairs with the i-th
// VF. GPUs are ordered by address, like the vendors' runtimes; VFs by their GPUs. After a question, the plan
// has the order. Without a question, the GPUs are the container's, or the nearest GPUs: the kubelet most
// likely allocates them next.
func orderDevices(b *books, g grant) []string {
	r, ids := b.resources[g.resource], g.ids
	switch {
	case r == nil:
		return slices.Sorted(slices.Values(ids))
	case r.Kind == device.VF && device.SameSet(g.planned, ids):
		return slices.Clone(g.planned)
	}
	taken := device.All(r.Select(ids))
	request := placement.Request{GPUs: []placement.Half{taken}}
	if r.Kind == device.VF {
		request = placement.Request{
			GPUs: []placement.Half{gpusBeside(b, r, ids, g.container)}, VFs: []placement.Half{taken},
		}
	}
	choice, err := placement.Choose(b.tree, request)
	if err != nil {
		return slices.Sorted(slices.Values(ids))
	}
	var ordered []string
	for _, d := range slices.Concat(choice.GPUs, choice.VFs) {
		if slices.Contains(ids, d.ID) {
			ordered = append(ordered, d.ID)
		}
	}
	return ordered
}

// gpusBeside returns the most likely GPUs for VFs allocated without a question: known GPUs of the container,
// then free GPUs on the NUMA nodes of the VFs, then held GPUs there. The kubelet was not read just now,
// therefore devices of an ended container can still count as held.
func gpusBeside(b *books, r *device.Resource, ids []string, c *recipient) placement.Half {
	half := device.All(b.resources.Held(c.Devices, device.GPU))
	free, taken := b.onNodes(device.GPU, b.resources.Nodes(r.Name, ids))
	if len(half.Held)+len(free) < len(ids) {
		half.Held, free = append(half.Held, free...), taken
	}
	half.Free = slices.DeleteFunc(free, func(d placement.Device) bool { return slices.Contains(half.Held, d) })
	half.Count = max(len(half.Held), min(len(ids), len(half.Held)+len(half.Free)))
	return half
}

// acceptGrant records a grant and returns its devices in the container's order, and the recipient.
func (tx *transaction) acceptGrant(g grant) *api.AllocatedResponse {
	order := orderDevices(tx.books(), g)
	tx.recordAnswer(g, order, "")
	tx.open.Devices[g.resource] = order
	if len(tx.open.Files) > 0 {
		tx.paired = tx.open
	}
	tx.reportGranted(g)
	return &api.AllocatedResponse{
		Devices: slices.Clone(order), Container: encodeOwner(g.container.Likely(), ""),
	}
}

// recordAnswer records an answered Allocate for the history. The container of the grant is nil if unknown.
func (tx *transaction) recordAnswer(g grant, order []string, refusal string) {
	at := tx.now().UnixNano()
	tx.handover = &api.Decision{
		TimeUnixNano: at, AllocatedUnixNano: at, Asked: g.asked, Resource: g.resource, Size: uint32(len(order)),
		Allocated: slices.Clone(order), Refusal: refusal,
	}
	if c := g.container; c != nil {
		tx.handover.Container, tx.handover.PodUid = encodeOwner(c.Likely(), c.PodUID()), c.PodUID()
	}
}

// refuseGrant records a refusal: the kubelet rejects the container, and no Allocate follows. The container of
// the grant is nil if unknown.
func (tx *transaction) refuseGrant(g grant, outcome Outcome, why refusal) *api.AllocatedResponse {
	tx.endAdmission()
	resource, ids := g.resource, g.ids
	tx.recordAnswer(g, ids, why.full())
	tx.error("refuse", "resource", resource, "devices", ids, "outcome", outcome, "reason", why.said, "held_by",
		why.owners)
	tx.reportVerdict(Verdict{Resource: resource, Outcome: outcome, Refusal: why.said}, g.container)
	return &api.AllocatedResponse{Refusal: why.said}
}

// reportGranted reports a granted Allocate.
func (tx *transaction) reportGranted(g grant) {
	v := Verdict{Resource: g.resource, Outcome: Granted, Pairs: pairsOf(tx.books(), g.container, g.isSure())}
	if len(v.Pairs) > 0 {
		v.Outcome = Aligned
		if slices.ContainsFunc(v.Pairs, func(p placement.Pair) bool { return !p.Distance.Level.Direct() }) {
			v.Outcome = Degraded
		}
	}
	tx.reportVerdict(v, g.container)
	if v.Outcome == Degraded {
		tx.warn("pairs are not on one switch each", "container", g.recipient(), "pairs", describePairs(v.Pairs),
			"reason", g.reason())
	}
}

// describePairs returns each pair with its distance: "0000:11:00.0-0000:0c:00.1 PIX".
func describePairs(pairs []placement.Pair) []string {
	var said []string
	for _, p := range pairs {
		said = append(said, fmt.Sprintf("%s-%s %s", p.GPU.ID, p.VF.ID, p.Distance.Level))
	}
	return said
}

// reportVerdict reports the verdict on an Allocate for a container, nil if unknown.
func (tx *transaction) reportVerdict(v Verdict, c *recipient) {
	if tx.resources[v.Resource] == nil {
		v.Resource = ""
	}
	if c != nil {
		v.Container, v.PodUID = c.Likely(), c.PodUID()
	}
	if tx.livePlan() == nil {
		tx.endPromise(Dropped)
	}
	tx.observe(v)
}

// pairsOf returns the pairs of a container's devices; nil if the container may be incomplete. Sure reports
// that all devices belong to a single container.
func pairsOf(b *books, c *recipient, sure bool) []placement.Pair {
	gpus, vfs := b.resources.Held(c.Devices, device.GPU), b.resources.Held(c.Devices, device.VF)
	switch {
	case c.Asker != nil && !c.Complete(func(name string) bool { return b.resources[name] != nil }):
		return nil
	case c.Asker != nil && !c.Asker.Exact && len(b.resources.OfKind(device.VF)) > 1:
		return nil // another candidate may request VFs of further resources
	case c.Asker == nil && (!sure || len(gpus) == 0 || len(vfs) == 0 ||
		len(vfs) < len(gpus) && len(b.resources.OfKind(device.VF)) > 1):
		return nil // VFs of further resources may follow
	}
	return placement.PairsOf(b.tree, placement.Devices{GPUs: device.All(gpus).Held, VFs: device.All(vfs).Held})
}
