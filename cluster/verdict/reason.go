package verdict

import (
	"fmt"
	"strings"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
)

// aligned says that pairs would be apart whose alignment is required.
func aligned(together, pairs int) string {
	return fmt.Sprintf("only %d of %d pairs can be on one switch and the pod has annotation %s: %s",
		together, pairs, intent.AlignmentKey, intent.Required)
}

// reason is one sentence for people.
func (t *trial) reason(r *refused, never bool) string {
	sentence := r.required + r.kubelet // one of the two at the most
	if sentence == "" {
		sentence = t.short(r.asked, r.wish != nil)
	}
	if sentence == "" {
		sentence = t.topology(r, never)
	}
	if r.wish != nil && (t.wishes.several || len(r.wish.asked) == 0) {
		sentence = fmt.Sprintf("container %s: %s", r.wish.container.Name, sentence)
	}
	return sentence
}

// topology says why the Topology Manager finds no NUMA nodes.
func (t *trial) topology(r *refused, never bool) string {
	type need struct {
		ask
		nodes int
	}
	var needs []need
	most, least := need{}, need{nodes: 65}
	for _, a := range r.asked {
		resource := &t.resources[a.resource]
		if !resource.hinted {
			continue
		}
		n := need{a, t.rule.Width(t.demand(resource, a.count, r.wish != nil))}
		needs = append(needs, n)
		if n.nodes > most.nodes {
			most = n
		}
		if n.nodes < least.nodes {
			least = n
		}
	}
	single := t.rule.Policy == hints.SingleNUMANode
	switch {
	case len(needs) == 0:
		return fmt.Sprintf("no NUMA nodes have the CPUs and memory that are asked for; policy %s refuses others",
			t.rule.Policy)
	case never && most.nodes != least.nodes:
		sentence := fmt.Sprintf("%s needed for %s, %s with hints need %d: never admitted under %s",
			nodes(most.nodes), t.amount(most.ask), t.plural(least.ask), least.nodes, t.rule.Policy)
		if t.resources[least.resource].kind == vf {
			sentence += "; excludeTopology is the way out"
		}
		return sentence
	case single && most.nodes > 1:
		return fmt.Sprintf("%s needed for %s: never admitted under %s", nodes(most.nodes), t.amount(most.ask),
			t.rule.Policy)
	}
	var hinted []ask
	for _, n := range needs {
		hinted = append(hinted, n.ask)
	}
	where := "no NUMA node has "
	if most.nodes > 1 {
		where = fmt.Sprintf("no %d NUMA nodes have ", most.nodes)
	}
	sentence := where + t.list(hinted) + " free"
	if t.managers != nil {
		sentence += " with the CPUs and memory that are asked for"
	}
	return sentence + fmt.Sprintf("; policy %s refuses more nodes", t.rule.Policy)
}

func nodes(n int) string {
	if n == 1 {
		return "1 NUMA node"
	}
	return fmt.Sprintf("%d NUMA nodes", n)
}

// amount is "8 GPUs".
func (t *trial) amount(a ask) string {
	if a.count == 1 {
		return "1 " + [...]string{"GPU", "VF"}[t.resources[a.resource].kind]
	}
	return fmt.Sprint(a.count, " ", t.plural(a))
}

func (t *trial) plural(a ask) string { return [...]string{"GPUs", "VFs"}[t.resources[a.resource].kind] }

// list is "4 amd.com/gpu and 4 tandem.dev/rdma_vf".
func (t *trial) list(asked []ask) string {
	var parts []string
	for _, a := range asked {
		parts = append(parts, fmt.Sprintf("%d %s", a.count, t.resources[a.resource].name))
	}
	if len(parts) < 2 {
		return strings.Join(parts, "")
	}
	return strings.Join(parts[:len(parts)-1], ", ") + " and " + parts[len(parts)-1]
}
