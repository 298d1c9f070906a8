// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
)

// podChecks are the checks of pods.
var podChecks = []check{
	{ // the scheduler counted free devices, wherever on the node these were
		id: "refused-pods", severity: Warning, in: ofPlugins,
		why:  "Kubernetes deletes such pods only when the cluster has more than 12,500 terminated pods.",
		find: (*Node).findRefusedPods,
	},
}

// Refused are pods that the kubelet of a node has refused for their NUMA nodes, and that nobody has deleted.
type Refused struct {
	Pods    RefusedPods
	Seen    []string // evidence: the names, or the source of the number
	Unknown string   // why the number is unknown; the other fields mean nothing then
}

// readRefused takes the pods that the API server has counted, or asks the kubelet for its pods, which needs
// root's rights alone.
func (n *Node) readRefused(ctx context.Context) {
	if n.Counted.String() != "" {
		n.Refused = Refused{Pods: n.Counted, Seen: []string{
			"kubectl get pods -A --field-selector status.phase=Failed,spec.nodeName=" +
				cmp.Or(n.ReadElsewhere, "NODE") + " lists them",
		}}
		return
	}
	pods, err := coordinator.RejectedPods(ctx, n.KubeletDir)
	if err != nil {
		n.Refused.Unknown = err.Error()
		return
	}
	for _, pod := range pods {
		n.Refused.Seen = append(n.Refused.Seen, pod.Namespace+"/"+pod.Name)
		n.Refused.Pods.Add(pod)
	}
	slices.Sort(n.Refused.Seen)
}

// judged are the numbers of refused pods that the empty node refuses, or not, and their shapes.
type judged struct {
	always, busy, unknown int
	shapes                []string
}

// judgeRefused judges the shapes of the refused pods on the empty node.
func (n *Node) judgeRefused() (f judged) {
	policy := model.Restricted
	if n.settings.Policy == singleNode { // the others refuse nobody: then the policy has changed since
		policy = model.SingleNUMANode
	}
	empty := n.emptyUnder(policy)
	node := coordinator.NewNode(n.status.Resources, empty.manager)
	cpus := func(count int) model.Hints { return empty.manager.Rule.Hints(empty.cpuDemand(count)) }
	for _, group := range n.Refused.Pods.groups {
		shape, known := describeShape(n.status.Resources, group.Containers)
		if !known {
			f.unknown += group.Number
			continue
		}
		text := fmt.Sprintf("%s requested %s: ", cli.Count(group.Number, "pod"), shape)
		if node.AdmitsEmpty(group.Containers, cpus) {
			f.busy += group.Number
			text += "rejected only while devices are in use"
		} else {
			f.always += group.Number
			text += "always rejected, even on an empty node"
		}
		f.shapes = append(f.shapes, text)
	}
	return f
}

// measured repeats the measurement of rejected pods in docs/performance.md.
const measured = "With 90 % of the GPUs requested, kubelets rejected 14.3 % of its pods at least once, and none " +
	"of tandem-scheduler's (docs/performance.md)."

func (n *Node) findRefusedPods(f *Finding) {
	r, number := n.judgeRefused(), n.Refused.Pods.Number()
	if number == 0 {
		return
	}
	f.Summary = fmt.Sprintf("%s rejected by this kubelet and not deleted: %s.", cli.CountAre(number, "pod"),
		intent.TopologyAffinity)
	f.Evidence = slices.Concat(someOf(r.shapes), someOf(n.Refused.Seen))
	if r.always > 0 {
		f.Fix = append(f.Fix, "a shape that is always rejected: request another number of devices or CPUs (tandem "+
			"plan tries a request); no scheduler can help on this node")
	}
	if r.busy+r.unknown > 0 {
		f.Why = "The default scheduler counts devices without regard to NUMA nodes. " + measured + " " + f.Why
		f.Fix = append(f.Fix,
			"use tandem-scheduler, which applies the kubelet's admission rules (scheduler.enabled in the chart)",
			"or configure the default scheduler to spread pods (LeastAllocated) instead of packing them")
	}
	f.Fix = append(f.Fix, "the descheduler deletes the existing pods: deployments/descheduler/values.yaml")
}

// RefusedPods are refused pods, grouped by their requests. RefusedPods is a flag (pflag.Value).
type RefusedPods struct {
	groups []refusedGroup
	index  map[string]int // of groups, by their requests
}

// refusedGroup is a number of refused pods with the same requests.
type refusedGroup struct {
	Number     int
	Containers []intent.Container // with requests; none: unknown
}

// cpu is the name of exclusive CPUs in a flag.
const cpu = "cpu"

// roles are the names of roles in a flag, as requests of one. An older doctor takes the names for resources
// of other plugins.
var roles = map[string]model.Role{"init": model.Init, "sidecar": model.Sidecar}

// Add adds a pod.
func (r *RefusedPods) Add(pod *corev1.Pod) {
	containers := slices.DeleteFunc(intent.ContainersOf(pod), func(c intent.Container) bool {
		return len(c.Requests) == 0 && c.CPUs == 0
	})
	r.addGroup(refusedGroup{1, containers})
}

func (r *RefusedPods) addGroup(group refusedGroup) {
	requests := group.describeRequests()
	if i, known := r.index[requests]; known {
		r.groups[i].Number += group.Number
		return
	}
	if r.index == nil {
		r.index = map[string]int{}
	}
	r.index[requests] = len(r.groups)
	r.groups = append(r.groups, group)
}

// Number returns the number of pods.
func (r RefusedPods) Number() (number int) {
	for _, group := range r.groups {
		number += group.Number
	}
	return number
}

// mostGroups limits the flags of a command line.
const mostGroups = 16

// Flags returns the pods as values of the flag, at least one value. Requests of rare groups are left out.
func (r RefusedPods) Flags() []string {
	sorted := slices.SortedStableFunc(slices.Values(r.groups), func(a, b refusedGroup) int {
		return b.Number - a.Number
	})
	values, rest := []string{}, 0
	for i, group := range sorted {
		if i >= mostGroups || group.describeRequests() == "" {
			rest += group.Number
			continue
		}
		values = append(values, fmt.Sprintf("%d:%s", group.Number, group.describeRequests()))
	}
	if rest > 0 || len(values) == 0 {
		values = append(values, strconv.Itoa(rest))
	}
	return values
}

// describeRequests returns the requests as "init=1,cpu=8,example.com/gpu=2;example.com/vf=1", one container
// after the other.
func (g refusedGroup) describeRequests() string {
	var containers []string
	for _, c := range g.Containers {
		var list []string
		for name, role := range roles {
			if c.Role == role {
				list = append(list, name+"=1")
			}
		}
		if c.CPUs > 0 {
			list = append(list, fmt.Sprintf("%s=%d", cpu, c.CPUs))
		}
		for _, name := range slices.Sorted(maps.Keys(c.Requests)) {
			list = append(list, fmt.Sprintf("%s=%d", name, c.Requests[name]))
		}
		containers = append(containers, strings.Join(list, ","))
	}
	return strings.Join(containers, ";")
}

// String implements pflag.Value.
func (r *RefusedPods) String() string {
	if len(r.groups) == 0 {
		return ""
	}
	return strings.Join(r.Flags(), " ")
}

// Type implements pflag.Value.
func (*RefusedPods) Type() string { return "NUMBER[:REQUESTS]" }

// Set implements pflag.Value: it adds pods.
func (r *RefusedPods) Set(text string) error {
	number, requests, known := strings.Cut(text, ":")
	group := refusedGroup{}
	var err error
	group.Number, err = strconv.Atoi(number)
	if err != nil || group.Number < 0 {
		return fmt.Errorf("number of pods %q: want 0 or more", number)
	}
	for container := range strings.SplitSeq(requests, ";") {
		if !known {
			break
		}
		c := intent.Container{Requests: map[string]int{}}
		for request := range strings.SplitSeq(container, ",") {
			name, value, _ := strings.Cut(request, "=")
			count, err := strconv.Atoi(value)
			if name == "" || err != nil || count < 0 {
				return fmt.Errorf("request %q: want RESOURCE=NUMBER", request)
			}
			switch role, named := roles[name]; {
			case named:
				c.Role = role
			case name == cpu:
				c.CPUs = count
			default:
				c.Requests[name] = count
			}
		}
		group.Containers = append(group.Containers, c)
	}
	r.addGroup(group)
	return nil
}

// describeShape returns the requests of a pod, as "2 GPUs and 2 VFs with 8 CPUs", containers one after the
// other; false if no container requests an offered device.
func describeShape(offered []coordinator.Resource, containers []intent.Container) (shape string, known bool) {
	var all []string
	for _, c := range containers {
		var parts []string
		for _, kind := range []device.Kind{device.GPU, device.VF} {
			count := 0
			for _, r := range offered {
				if r.Kind == string(kind) {
					count += c.Requests[r.Name]
				}
			}
			if count > 0 {
				parts = append(parts, cli.Count(count, strings.ToUpper(string(kind))))
				known = true
			}
		}
		text := strings.Join(parts, " and ")
		switch {
		case c.CPUs > 0 && text != "":
			text += " with " + cli.Count(c.CPUs, "CPU")
		case c.CPUs > 0:
			text = cli.Count(c.CPUs, "CPU")
		case text == "":
			continue
		}
		all = append(all, text)
	}
	return strings.Join(all, " + "), known
}
