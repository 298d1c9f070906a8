// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Daemon is the pod of one of Tandem's daemons.
type Daemon struct {
	Namespace, Pod, Node string
	Container            string            // that the daemon is in
	Flags                map[string]string // of the daemon, without dashes: where the folders of the node are
	Trouble              string            // why it cannot be asked; "" where its container runs
}

// byNode are the daemons of pods that have a node. Those of one node are sorted: first those that run, then
// by name.
func byNode(pods []corev1.Pod) map[string][]Daemon {
	nodes := map[string][]Daemon{}
	for i := range pods {
		if d, ok := newDaemon(&pods[i]); ok {
			nodes[d.Node] = append(nodes[d.Node], d)
		}
	}
	for _, daemons := range nodes {
		slices.SortFunc(daemons, func(a, b Daemon) int {
			return cmp.Or(compare(a.Trouble != "", b.Trouble != ""), cmp.Compare(a.Pod, b.Pod),
				cmp.Compare(a.Namespace, b.Namespace))
		})
	}
	return nodes
}

// compare puts false before true.
func compare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}

// newDaemon reads a pod. The daemon is in the container that starts one of Tandem's programs, else in the
// first.
func newDaemon(pod *corev1.Pod) (d Daemon, ok bool) {
	if pod.Spec.NodeName == "" || len(pod.Spec.Containers) == 0 {
		return Daemon{}, false
	}
	at := max(0, slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool {
		return strings.HasPrefix(c.Name, "tandem-") ||
			len(c.Command) > 0 && strings.HasPrefix(c.Command[0], "tandem-")
	}))
	container := pod.Spec.Containers[at]
	d = Daemon{
		Namespace: pod.Namespace, Pod: pod.Name, Node: pod.Spec.NodeName, Container: container.Name,
		Flags: map[string]string{}, Trouble: trouble(pod, container.Name),
	}
	for _, arg := range slices.Concat(container.Command, container.Args) {
		name, value, isFlag := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		// What the kubelet replaces in it cannot be told from here.
		if isFlag && strings.HasPrefix(arg, "-") && !strings.Contains(value, "$(") {
			d.Flags[name] = value
		}
	}
	return d, true
}

// trouble says why no program can be started in a container; "" where one can.
func trouble(pod *corev1.Pod, container string) string {
	for _, s := range pod.Status.ContainerStatuses {
		if s.Name != container {
			continue
		}
		switch {
		case s.State.Running != nil && pod.DeletionTimestamp == nil:
			return ""
		case s.State.Running != nil:
			return "the pod is being deleted"
		case s.State.Waiting != nil:
			return "its container waits: " + s.State.Waiting.Reason
		case s.State.Terminated != nil:
			return "its container has ended: " + s.State.Terminated.Reason
		}
	}
	return fmt.Sprintf("the pod is %s", cmp.Or(pod.Status.Phase, corev1.PodPending))
}

// prefer puts the daemons that have a flag first: tandem-rdma alone knows the configuration of VFs.
func prefer(daemons []Daemon, flag string) []Daemon {
	sorted := slices.Clone(daemons)
	slices.SortStableFunc(sorted, func(a, b Daemon) int {
		return cmp.Or(compare(a.Trouble != "", b.Trouble != ""), compare(a.Flags[flag] == "", b.Flags[flag] == ""))
	})
	return sorted
}

// flags passes some of the daemon's flags on to a command, by the names that the command has for them.
func (d Daemon) flags(names map[string]string) (list []string) {
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if value, ok := d.Flags[name]; ok {
			list = append(list, "--"+names[name]+"="+value)
		}
	}
	return list
}
