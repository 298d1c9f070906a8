// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"fmt"
	"strings"

	"github.com/tandem-k8s/tandem/coordination/kubelet/devicemanager"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
)

// reason returns the reason of a refusal as one sentence for people.
func (t *trial) reason(r *devicemanager.Refusal, never bool) string {
	sentence := ""
	shortage := t.shortage(r)
	switch {
	case r.Err != nil:
		sentence = r.Err.Error()
	case shortage != nil:
		sentence = t.short(shortage, r.Requests)
	default:
		sentence = t.topology(r, never)
	}
	if r.Container >= 0 && (t.requests.with > 1 || len(r.Requests) == 0) {
		sentence = fmt.Sprintf("container %s: %s", t.requests.containers[r.Container].Name, sentence)
	}
	return sentence
}

// shortage returns the shortage of devices that causes a refusal, or nil.
func (t *trial) shortage(r *devicemanager.Refusal) *devicemanager.Shortage {
	if r.Err != nil || r.Shortage != nil {
		return r.Shortage
	}
	return t.Shortage(r.Requests, r.Container >= 0)
}

// short describes a shortage of devices.
func (t *trial) short(s *devicemanager.Shortage, asked devicemanager.Requests) string {
	r := &t.Node.Resources[s.Resource]
	if !s.Healthy {
		return fmt.Sprintf("no %s is healthy", r.Name)
	}
	return fmt.Sprintf("only %d of %d %s are free, asked for are %s", s.Free, r.Count, r.Name, t.list(asked))
}

// topology explains why the Topology Manager finds no NUMA nodes.
func (t *trial) topology(r *devicemanager.Refusal, never bool) string {
	type need struct {
		devicemanager.Request
		nodes int
	}
	rule := &t.Kubelet.Rule
	var hinted devicemanager.Requests
	most, least := need{}, need{nodes: 65}
	for _, a := range r.Requests.ByResource() {
		if !t.Node.Resources[a.Resource].Hinted {
			continue
		}
		hinted = append(hinted, a)
		n := need{a, rule.Width(t.Demand(a, r.Container >= 0))}
		if n.nodes > most.nodes {
			most = n
		}
		if n.nodes < least.nodes {
			least = n
		}
	}
	switch {
	case len(hinted) == 0:
		return fmt.Sprintf("no NUMA nodes have the requested CPUs and memory; policy %s refuses others",
			rule.Policy)
	case never && most.nodes != least.nodes:
		sentence := fmt.Sprintf("%s needed for %s, %s with hints need %d: never admitted under %s",
			countNodes(most.nodes), t.amount(most.Request), t.plural(least.Request), least.nodes, rule.Policy)
		if t.Node.Resources[least.Resource].Kind == devicemanager.VF {
			sentence += "; excludeTopology is the way out"
		}
		return sentence
	case rule.Policy == hints.SingleNUMANode && most.nodes > 1:
		return fmt.Sprintf("%s needed for %s: never admitted under %s", countNodes(most.nodes),
			t.amount(most.Request), rule.Policy)
	}
	where := "no NUMA node has "
	if most.nodes > 1 {
		where = fmt.Sprintf("no %d NUMA nodes have ", most.nodes)
	}
	sentence := where + t.list(hinted) + " free"
	if t.managers != nil {
		sentence += " with the requested CPUs and memory"
	}
	return sentence + fmt.Sprintf("; policy %s refuses more nodes", rule.Policy)
}

func countNodes(n int) string {
	if n == 1 {
		return "1 NUMA node"
	}
	return fmt.Sprintf("%d NUMA nodes", n)
}

// amount returns text such as "8 GPUs".
func (t *trial) amount(a devicemanager.Request) string {
	if a.Count == 1 {
		return fmt.Sprint("1 ", t.Node.Resources[a.Resource].Kind)
	}
	return fmt.Sprint(a.Count, " ", t.plural(a))
}

func (t *trial) plural(a devicemanager.Request) string {
	return t.Node.Resources[a.Resource].Kind.String() + "s"
}

// list returns text such as "4 amd.com/gpu and 4 tandem.dev/rdma_vf".
func (t *trial) list(asked devicemanager.Requests) string {
	var parts []string
	for _, a := range asked.ByResource() {
		parts = append(parts, fmt.Sprintf("%d %s", a.Count, t.Node.Resources[a.Resource].Name))
	}
	if len(parts) < 2 {
		return strings.Join(parts, "")
	}
	return strings.Join(parts[:len(parts)-1], ", ") + " and " + parts[len(parts)-1]
}
