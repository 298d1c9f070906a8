// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/asking"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/history"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// Taken is the answer to an Allocate.
type Taken struct {
	Order     []string           // the devices in the container's order
	Container *kubelet.Container // the recipient; nil if unknown
	Refusal   string             // the reason for a refusal, in one sentence; "" for none
}

// accept records a grant and returns its devices in the container's order.
func (tx *transaction) accept(g grant) (order []string) {
	order = orderDevices(tx.books(), g)
	tx.handover = &history.Allocation{
		At: tx.now(), Container: g.container.Likely(), PodUID: g.container.PodUID(), Resource: g.name, IDs: order,
		Asked: g.asked,
	}
	tx.open.devices[g.name] = order
	if r := tx.resources[g.name]; r != nil && r.Kind == device.GPU {
		tx.paired = len(tx.open.files) > 0
	}
	tx.reportGranted(g)
	return order
}

// refuse records a refusal: the kubelet rejects the container, and no Allocate follows. C is nil if unknown.
func (tx *transaction) refuse(
	c *asking.Container, name string, ids []string, outcome Outcome, why refusal,
) (taken Taken) {
	tx.end()
	refused := &history.Allocation{At: tx.now(), Resource: name, IDs: ids, Refusal: why.full()}
	if c != nil {
		refused.Container, refused.PodUID = c.Likely(), c.PodUID()
	}
	tx.error("refuse", "resource", name, "devices", ids, "outcome", outcome, "reason", why.said, "held_by",
		why.owners)
	tx.handover = refused
	tx.reportVerdict(Verdict{Resource: name, Outcome: outcome, Refusal: why.said}, c)
	return Taken{Refusal: why.said}
}

// reportGranted reports a granted Allocate.
func (tx *transaction) reportGranted(g grant) {
	v := Verdict{Resource: g.name, Outcome: Granted, Pairs: pairsOf(tx.books(), g.container, g.isSure())}
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
func (tx *transaction) reportVerdict(v Verdict, c *asking.Container) {
	if tx.resources[v.Resource] == nil {
		v.Resource = ""
	}
	if c != nil {
		v.Container, v.PodUID = c.Likely(), c.PodUID()
	}
	if tx.livePlan() == nil {
		tx.endPromise(Dropped)
	}
	tx.observe(func(o DecisionObserver) { o.Allocated(v) })
}

// pairsOf returns the pairs of a container's devices; nil if the container may be incomplete. Sure reports
// that all devices belong to a single container.
func pairsOf(b *books, c *asking.Container, sure bool) []placement.Pair {
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
	choice, err := placement.Choose(b.tree, placement.Request{
		GPUs: []placement.Half{device.All(gpus)}, VFs: []placement.Half{device.All(vfs)},
	})
	if err != nil {
		return nil
	}
	return choice.Pairs
}
