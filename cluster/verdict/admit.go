package verdict

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
)

// trial is the admission of a pod.
type trial struct {
	*Node
	wishes   *wishes
	taken    set // by the pods before and by this one
	got      set // by this one
	reusable set // left by init containers, for the next ones to take first
	given    []given
	managers Given
	heirs    int // containers that came since init containers have left something
	chance   bool
}

// refused is why a pod is not admitted: one of the three.
type refused struct {
	wish     *wish  // the container; nil under scope pod
	asked    []ask  // that the Topology Manager finds no nodes for
	kubelet  string // what the device manager, or one of the others, says instead
	required string // what Tandem says instead
}

func (s *State) begin(w *wishes) *trial {
	t := &trial{
		Node: s.node, wishes: w, taken: slices.Clone(s.taken), got: s.node.none(), reusable: s.node.none(),
		managers: s.managers,
	}
	if t.managers != nil {
		t.managers = t.managers.Clone()
	}
	return t
}

// admit goes through a pod as the kubelet does: containers one after the other, init containers first; each
// gets NUMA nodes, of its own or under scope pod those of the whole pod, and then its devices, before the
// next one is looked at. Without all, the devices of the last container are chosen only where Tandem may
// refuse them. What it returns is nil for a pod that is admitted.
func (t *trial) admit(all bool) *refused {
	var best hints.Hint
	if t.scope == scopePod {
		total, admitted := t.wishes.total(), false
		if best, admitted = t.merge(nil, total); !admitted {
			return &refused{asked: total}
		}
	}
	for i := range t.wishes.containers {
		w := &t.wishes.containers[i]
		if len(w.asked) == 0 && t.managers == nil {
			continue
		}
		if t.scope != scopePod {
			admitted := false
			if best, admitted = t.merge(w, w.asked); !admitted {
				return &refused{wish: w, asked: w.asked}
			}
		}
		if r := t.admitContainer(w, best, all || !t.last(i)); r != nil {
			return r
		}
	}
	return nil
}

// last reports whether no container with devices follows.
func (t *trial) last(i int) bool {
	return !slices.ContainsFunc(t.wishes.containers[i+1:], func(w wish) bool { return len(w.asked) > 0 })
}

// merge is what the Topology Manager makes of what a container asks for, or of the total of a pod where there
// is no container.
func (t *trial) merge(w *wish, asked []ask) (hints.Hint, bool) {
	if t.rule.Policy == hints.None {
		return hints.Hint{}, true
	}
	demands := make([]hints.Demand, 0, 4)
	for _, a := range asked {
		if r := &t.resources[a.resource]; r.hinted {
			demands = append(demands, t.demand(r, a.count, w != nil))
		}
	}
	if t.managers == nil {
		return t.rule.Merge(demands)
	}
	var container *v1.Container
	if w != nil {
		container = w.container
	}
	return t.rule.Merge(demands, t.managers.Hints(t.wishes.pod, container)...)
}

// demand is what the Topology Manager sees of a resource. What init containers left is for containers alone.
func (t *trial) demand(r *resource, count int, reuse bool) hints.Demand {
	d := hints.Demand{Count: count, Named: true, All: r.total, Free: make(hints.PerNode, len(r.on))}
	free := t.free()
	for node, on := range r.on {
		d.Free[node] = free.both(on)
	}
	if reuse && t.reusable.both(r.all) > 0 {
		d.Reused = make(hints.PerNode, len(r.on))
		for node, on := range r.on {
			d.Reused[node] = t.reusable.both(on)
			d.Free[node] += d.Reused[node]
		}
	}
	return d
}

// free are the devices that can be given.
func (t *trial) free() set { return t.healthy.without(t.taken) }

// admitContainer gives a container its devices, then its CPUs and memory.
func (t *trial) admitContainer(w *wish, best hints.Hint, devices bool) *refused {
	g := given{name: w.container.Name, nodes: best.Nodes, devices: t.none()}
	if sentence := t.short(w.asked, true); sentence != "" {
		return &refused{wish: w, kubelet: sentence}
	}
	t.inherit(w)
	if devices || t.wishes.required {
		g.devices = t.devices(w, best.Nodes)
		if sentence := t.misaligned(w, g.devices); sentence != "" {
			return &refused{wish: w, required: sentence}
		}
	}
	if t.managers != nil {
		if err := t.managers.Take(t.wishes.pod, w.container, best); err != nil {
			return &refused{wish: w, kubelet: err.Error()}
		}
	}
	t.taken.join(g.devices)
	t.got.join(g.devices)
	if w.role == intent.Init {
		t.reusable.join(g.devices)
	} else {
		t.reusable.leave(g.devices)
	}
	if len(w.asked) > 0 {
		t.given = append(t.given, g)
	}
	return nil
}

// inherit notes that a container comes which may take over from init containers.
func (t *trial) inherit(w *wish) {
	if len(w.asked) == 0 || t.reusable.count() == 0 {
		return
	}
	t.heirs++
	for _, a := range w.asked {
		if t.heirs > 1 && a.count > 0 && t.reusable.both(t.resources[a.resource].all) > 0 {
			t.chance = true
		}
	}
}

// short is what the device manager says where there are fewer devices than are asked for (devicesToAllocate);
// "" where there are enough. What init containers left is for containers alone.
func (t *trial) short(asked []ask, reuse bool) string {
	free := t.free()
	if reuse {
		free.join(t.reusable)
	}
	for _, a := range asked {
		r := &t.resources[a.resource]
		switch have := free.both(r.all); {
		case t.healthy.both(r.all) == 0:
			return fmt.Sprintf("no %s is healthy", r.name)
		case have < a.count:
			return fmt.Sprintf("only %d of %d %s are free, asked for are %s", have, r.count, r.name, t.list(asked))
		}
	}
	return ""
}

// held is what the pod has then.
func (t *trial) held() *pod {
	return &pod{uid: t.wishes.pod.UID, containers: t.given, all: t.got}
}
