// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
)

// judgeRejection returns the reason for a rejection and the most helpful step.
func (n *Node) judgeRejection(r *Rejection, pod []model.Container) (why, next string) {
	cpus := mostCPUs(r.Containers)
	doctor := fmt.Sprintf("%s --cpus %d", r.doctorCommand(), cpus)
	switch {
	case len(r.Resources) == 0 && cpus > 0:
		return "The pod requests no device of Tandem's plugins: the kubelet has no NUMA nodes for its CPUs or " +
			"other resources.", doctor + " shows the CPUs of each NUMA node"
	case len(r.Resources) == 0:
		return "The pod requests no device that Tandem's plugins offer on this node.",
			r.tandemCommand() + " status shows the offered devices"
	case r.FitsNow && cpus > 0:
		return "The devices fit the free devices of this node now. The kubelet rejected the pod for its " +
				"exclusive CPUs, or a pod has released devices since.",
			doctor + " lists numbers of CPUs with which the node admits these devices"
	case r.FitsNow:
		return "The devices fit the free devices of this node now: a pod has released devices since the rejection.",
			"create the pod again"
	case r.FitsEmpty:
		return "The node admits this pod only while less of it is in use: now no set of NUMA nodes has enough " +
			"free devices of each resource. " + n.whereEmpty(pod), n.findRelease(r, pod)
	default:
		return "This node always rejects this pod, even with all devices free: " + n.describeRefusal(pod),
			n.otherShape(r, pod)
	}
}

// tandemCommand returns the command line for a question about the node of the pod.
func (r *Rejection) tandemCommand() string {
	if r.Node == "" {
		return "tandem"
	}
	return "kubectl tandem"
}

func (r *Rejection) doctorCommand() string {
	return strings.TrimSpace(r.tandemCommand() + " doctor " + r.Node)
}

// describeThen returns a sentence about the devices at the rejection, "" without a question. Known are the
// holders of now that were there already, by decisions without an error: holders that have ended since are in
// no record.
func (n *Node) describeThen(r *Rejection, pod []model.Container, err error) string {
	if len(r.Resources) == 0 || !r.FitsEmpty {
		return ""
	}
	if err != nil {
		return fmt.Sprintf("what was free is unknown: %v", err)
	}
	var later []string
	for _, h := range r.Holders {
		if r.orderOf(h) != allocatedBefore {
			later = append(later, h.Pod)
		}
	}
	if r.RejectedAt != nil && !n.canAdmit(n.takenBut(later...), pod...) {
		return "the same devices were missing: the pods that have had theirs since before the rejection suffice " +
			"for it"
	}
	return "what was free is unknown: the kubelet asked no plugin, and the devices of pods that have ended " +
		"since are in no record"
}

// The order of an allocation and the rejection.
const (
	allocatedBefore   = "before the rejection"
	allocatedInSecond = "in the second of the rejection"
	allocatedAfter    = "after the rejection"
	allocatedUnknown  = "unknown"
)

// orderOf returns the order of a holder's allocation and the rejection, whose time has whole seconds.
func (r *Rejection) orderOf(h holder) string {
	switch {
	case h.Since == nil || r.RejectedAt == nil:
		return allocatedUnknown
	case h.Since.Before(*r.RejectedAt):
		return allocatedBefore
	case h.Since.Before(r.RejectedAt.Add(time.Second)):
		return allocatedInSecond
	default:
		return allocatedAfter
	}
}

func mostCPUs(containers []intent.Container) (cpus int) {
	for _, c := range containers {
		cpus = max(cpus, c.CPUs)
	}
	return cpus
}

// whereEmpty returns a sentence about the NUMA nodes of the pod on the empty node.
func (n *Node) whereEmpty(pod []model.Container) string {
	count := 0
	for _, requests := range n.comparedRequests(pod) {
		count = max(count, n.numaNodes(requests).Count())
	}
	if count == 0 {
		return "The empty node admits the pod."
	}
	return fmt.Sprintf("The empty node admits the pod on %s.", cli.Count(count, "NUMA node"))
}

// describeRefusal returns the kubelet's reason on the empty node.
func (n *Node) describeRefusal(pod []model.Container) string {
	for _, request := range model.Total(pod) {
		of := &n.model.Resources[request.Resource]
		if has := n.healthy.Common(of.All); has < request.Count {
			return fmt.Sprintf("it has %d healthy devices of %s.", has, of.Name)
		}
	}
	return "the smallest sets of NUMA nodes for its resources have no set in common."
}

// mostTries limits the admissions of containers in a search. A pod has thousands of containers if its tenant
// wants it.
const mostTries = 1 << 14

// findRelease returns the pods whose end lets the node admit a pod: the pod with the fewest devices, or the
// smallest sequence of such pods. Devices of unknown pods stay taken.
func (n *Node) findRelease(r *Rejection, pod []model.Container) string {
	holders := n.knownHolders()
	if len(holders)*len(pod) > mostTries {
		holders = nil
	}
	again := ", then create " + r.Pod + " again; tandem-scheduler (scheduler.enabled in the chart) selects a " +
		"node that admits the pod"
	for _, holder := range holders {
		if n.canAdmit(n.takenBut(holder), pod...) {
			return "wait for the end of " + holder + again
		}
	}
	for i := range holders {
		if n.canAdmit(n.takenBut(holders[:i+1]...), pod...) {
			return fmt.Sprintf("wait for the end of %s such as %s%s", cli.Count(i+1, "pod"), holders[0],
				again)
		}
	}
	return "wait for free devices" + again
}

// knownHolders returns the pods with devices, fewest devices first.
func (n *Node) knownHolders() []string {
	holders := slices.SortedFunc(maps.Keys(n.held), func(a, b string) int {
		return cmp.Or(cmp.Compare(n.held[a].Len(), n.held[b].Len()), cmp.Compare(a, b))
	})
	return slices.DeleteFunc(holders, func(pod string) bool { return pod == unknownHolder })
}

// otherShape names the numbers of pairs that the empty node admits: in a container or, under scope pod, in
// the pod.
func (n *Node) otherShape(r *Rejection, pod []model.Container) string {
	var fits []string
	for _, requests := range n.comparedRequests(pod) {
		if n.numaNodes(requests) == 0 && len(requests) == 2 {
			fits = n.admittedPairs(requests)
			break
		}
	}
	doctor := r.doctorCommand() + " lists the shapes that the node always rejects, with fixes"
	if len(fits) == 0 {
		return doctor
	}
	number := "request another number of devices"
	if n.kubelet.ScopePod {
		number += " in all containers of the pod together"
	}
	return number + ": the empty node admits " + strings.Join(fits, ", ") + "; " + doctor
}

// mostShapes limits the named shapes.
const mostShapes = 8

// admittedPairs returns the numbers of pairs, as "2+2", of two requested resources that the empty node
// admits.
func (n *Node) admittedPairs(requests model.Requests) (fits []string) {
	a, b := requests[0], requests[1]
	most := n.model.Resources[a.Resource].All.Len() // a request may be of a million devices
	for a.Count = 1; a.Count <= most && len(fits) < mostShapes; a.Count++ {
		b.Count = a.Count
		pod := model.Container{Requests: model.Requests{a, b}}
		if n.canAdmit(n.model.NewSet(), pod) {
			fits = append(fits, fmt.Sprintf("%d+%d", a.Count, b.Count))
		}
	}
	return fits
}

// mostShown limits the containers in the text.
const mostShown = 16

// Text returns the rejection for people: the verdict and the next step first.
func (r Rejection) Text() *cli.Text {
	var out cli.Text
	node := "this node"
	if r.Node != "" {
		node = "node " + r.Node
	}
	out.Line(r.Pod, " ", cli.Bad.Of("was rejected"), fmt.Sprintf(
		" by the kubelet's Topology Manager on %s (policy %s, scope %s)", node, r.Policy, r.Scope))
	if r.Assumed != "" {
		fmt.Fprintf(&out, "   policy and scope are assumed: %s\n", r.Assumed)
	}
	out.Row("   why ", r.Verdict)
	if r.Then != "" {
		out.Row("   then", r.describeTime()+r.Then)
	}
	out.Row("   next", r.Next)
	for i, c := range r.Containers {
		if i == mostShown {
			fmt.Fprintf(&out, "\n   and %s more\n", cli.Count(len(r.Containers)-i, "container"))
			break
		}
		fmt.Fprintf(&out, "\n   container %s requests %s\n", c.Name, describeRequests(c))
	}
	if len(r.Resources) > 0 {
		r.writeResources(&out)
		r.writeSwitches(&out)
	}
	if len(r.Holders) > 0 {
		out.Line()
		out.Row("   HELD BY", "RESOURCE", "NUMA", "DEVICES", "SINCE")
		for _, h := range r.Holders {
			out.Row("   "+h.Pod, h.Resource, numaText(h.Node), h.Devices, r.orderOf(h))
		}
	}
	return &out
}

func (r Rejection) writeResources(out *cli.Text) {
	out.Line()
	out.Row("   RESOURCE", "REQUESTED", "NUMA", "FREE NOW")
	for _, resource := range r.Resources {
		name, requested := resource.Name, fmt.Sprint(resource.Requested)
		for _, count := range resource.NUMA {
			out.Row("   "+name, requested, numaText(count.Node), count.Count)
			name, requested = "", ""
		}
	}
}

// writeSwitches writes the free devices of each switch, a column for each resource.
func (r Rejection) writeSwitches(out *cli.Text) {
	if len(r.Switches) == 0 {
		return
	}
	free := map[string]map[string]string{} // by switch and resource
	var names []string
	for _, s := range r.Switches {
		if free[s.Name] == nil {
			free[s.Name], names = map[string]string{}, append(names, s.Name)
		}
		free[s.Name][s.Resource] = s.Count.String()
	}
	line := func(first string, cell func(resource string) string) {
		cells := []any{first}
		for _, resource := range r.Resources {
			cells = append(cells, cell(resource.Name))
		}
		out.Row(cells...)
	}
	out.Line()
	line("   SWITCH, FREE NOW", func(resource string) string { return resource })
	for _, name := range names {
		line("   "+name, func(resource string) string { return cmp.Or(free[name][resource], "-") })
	}
}

// describeTime returns the time of the rejection as the beginning of a sentence, "" if unknown.
func (r Rejection) describeTime() string {
	if r.RejectedAt == nil {
		return ""
	}
	return "at " + r.RejectedAt.Format(time.RFC3339) + " "
}

// describeRequests returns "2 amd.com/gpu, 2 tandem.dev/rdma_vf and 8 exclusive CPUs".
func describeRequests(c intent.Container) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(c.Requests)) {
		parts = append(parts, fmt.Sprintf("%d %s", c.Requests[name], name))
	}
	if c.CPUs > 0 {
		parts = append(parts, cli.Count(c.CPUs, "exclusive CPU"))
	}
	return strings.Join(parts, ", ")
}
