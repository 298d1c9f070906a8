package admission

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
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
	if !d.requires(g.allocation) {
		return refusal{}
	}
	pairs := d.pairsOf(g.allocation, g.sure())
	if p := g.plan; pairs == nil && p != nil && p.asker != nil && p.asker.exact {
		pairs = p.pairs
	}
	apart := slices.IndexFunc(pairs, func(p placement.Pair) bool { return !p.Distance.Level.SameSwitch() })
	if apart < 0 {
		return refusal{}
	}
	return d.refusal(pairs, pairs[apart], fmt.Sprintf("%d %s %s", len(g.ids), g.name, strings.Join(g.ids, ", ")),
		g.allocation)
}

// requires reports whether alignment is required of an allocation's container, whichever it is of those that
// it can be.
func (d *deciding) requires(a *allocation) bool {
	switch {
	case a.asker == nil:
		return d.alignment == intent.Required
	case !a.asker.exact:
		return false
	default:
		return cmp.Or(a.asker.pod.Alignment, d.alignment) == intent.Required
	}
}

// pairsOf are those of the devices of an allocation; nil while it is not known to be complete. Sure is
// whether it is known to be one container's.
func (d *deciding) pairsOf(a *allocation, sure bool) []placement.Pair {
	l := d.ledger
	gpus, vfs := l.latestOfKind(a, device.GPU), l.latestOfKind(a, device.VF)
	switch {
	case a.asker != nil && !l.complete(a):
		return nil
	case a.asker == nil &&
		(!sure || len(gpus) == 0 || len(vfs) == 0 || len(vfs) < len(gpus) && len(l.ofKind(device.VF)) > 1):
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

// complete reports whether an allocation has all that its container asks for.
func (l *ledger) complete(a *allocation) bool {
	for name, count := range a.asker.requests() {
		if l.resources[name] != nil && len(l.latest(a, name)) != count {
			return false
		}
	}
	return true
}

// latest lists what the newest Allocate of a resource gave an allocation. It gives all that a container has
// of the resource, also what it takes over from an init container; the rest stays with the pod unused.
func (l *ledger) latest(a *allocation, name string) []device.Device {
	if a == nil {
		return nil
	}
	var latest []device.Device
	newest := a.newestOf(name)
	for id, sequence := range a.devices[name] {
		if sequence == newest && l.resources[name] != nil {
			latest = append(latest, l.resources[name].device(id))
		}
	}
	slices.SortFunc(latest, device.Compare)
	return latest
}

func (l *ledger) latestOfKind(a *allocation, kind device.Kind) []device.Device {
	var latest []device.Device
	for _, r := range l.ofKind(kind) {
		latest = append(latest, l.latest(a, r.name)...)
	}
	return latest
}

// refusal names the pair that is apart, the switch of its GPU, and what is free there.
func (d *deciding) refusal(pairs []placement.Pair, apart placement.Pair, what string, a *allocation) refusal {
	together := 0
	for _, p := range pairs {
		if p.Distance.Level.SameSwitch() {
			together++
		}
	}
	free, all, owners := d.vfsNear(apart.GPU.Address, a)
	sentence := fmt.Sprintf("refuse %s: alignment is required and only %d of %d pairs can be on one switch: "+
		"GPU %s and VF %s are %s apart; below switch %s %d of %d VFs are free",
		what, together, len(pairs), apart.GPU.Address, apart.VF.Address, apart.Distance.Level,
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
func (d *deciding) vfsNear(gpu topology.Address, own *allocation) (free, all int, owners []string) {
	l := d.ledger
	for _, r := range l.ofKind(device.VF) {
		for id, vf := range r.devices {
			if !d.tree.Distance(gpu, vf.Address).Level.SameSwitch() {
				continue
			}
			all++
			switch held := l.holders[r.name][id]; {
			case l.isFree(r.name, id) && vf.Healthy:
				free++
			case held != nil && held != own:
				owners = append(owners, held.ownerName())
			}
		}
	}
	slices.Sort(owners)
	return free, all, slices.Compact(owners)
}
