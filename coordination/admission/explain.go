// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// podName is a pod name from the command line, with optional namespace and container.
type podName struct{ namespace, pod, container string }

// accepts reports whether a container matches.
func (n podName) accepts(c kubelet.Container) bool {
	return n.pod == c.Pod.Name && (n.namespace == "" || n.namespace == c.Namespace) &&
		(n.container == "" || n.container == c.Name)
}

// String returns the name of the pod.
func (n podName) String() string {
	if n.namespace == "" {
		return n.pod
	}
	return n.namespace + "/" + n.pod
}

// describe returns the name with the container's, for a sentence.
func (n podName) describe() string {
	if n.container != "" {
		return "container " + n.container + " of pod " + n.String()
	}
	return "pod " + n.String()
}

// Explain returns the decisions for a pod; namespace and container may be "", for any. The kubelet is read
// with Get, which frees nothing, to know the newest pod too. The error is the reason for an empty answer.
func (i *inspector) Explain(
	ctx context.Context, namespace, pod, container string,
) ([]*api.Decision, error) {
	name := podName{namespace, pod, container}
	view, unread := i.readPod(ctx, name)
	i.committed.addOptions()
	var found []*api.Decision
	var containers []string
	var ours bool
	i.committed.locked(func() {
		log := &i.committed.history
		found, containers = log.of(view, name.accepts), containersOf(log, name, view)
		ours = showsDevices(i.committed.current().resources, view, name.accepts)
	})
	switch {
	case len(found) > 0:
	case len(containers) > 0 && name.container != "" && !slices.Contains(containers, name.container):
		return nil, fmt.Errorf("explain %s: unknown container; the known containers of this pod are %s",
			name.describe(), strings.Join(containers, ", "))
	default:
		return nil, emptyAnswer(name, view, unread, ours)
	}
	if name.namespace == "" {
		name.namespace = found[0].GetContainer().GetNamespace()
		for _, m := range found {
			if other := m.GetContainer().GetNamespace(); other != name.namespace {
				return nil, fmt.Errorf("explain %s: pods in the namespaces %s and %s have this name; use NAMESPACE/%[1]s",
					name.pod, name.namespace, other)
			}
		}
	}
	return found, nil
}

// Recent returns all known decisions, the oldest first, including decisions for unknown containers.
func (i *inspector) Recent() (all []*api.Decision) {
	i.committed.addOptions()
	i.committed.locked(func() { all = i.committed.history.all() })
	return all
}

// showsDevices reports whether a view shows an announced device with an accepted container.
func showsDevices(set device.Resources, view kubelet.View, accepted func(kubelet.Container) bool) bool {
	for container, devices := range view.Containers {
		if accepted(container) && set.Only(devices) != nil {
			return true
		}
	}
	return false
}

// explainLimit is for the kubelet's answer to an Explain, for which people wait and no admission.
const explainLimit = time.Second

// readPod reads a pod from the kubelet.
func (i *inspector) readPod(ctx context.Context, name podName) (kubelet.View, error) {
	ctx, cancel := context.WithTimeout(ctx, explainLimit)
	defer cancel()
	if name.namespace == "" {
		name.namespace = "default"
	}
	return i.reader.Kubelet.Get(ctx, kubelet.Pod{Namespace: name.namespace, Name: name.pod})
}

// containersOf returns the names of a pod's containers in a view or in decisions.
func containersOf(log *decisionLog, name podName, view kubelet.View) []string {
	pod := podName{namespace: name.namespace, pod: name.pod}
	known := map[string]bool{}
	for container := range view.Containers {
		known[container.Name] = true
	}
	for _, m := range log.of(view, pod.accepts) {
		known[m.GetContainer().GetContainer()] = true
	}
	return slices.Sorted(maps.Keys(known))
}

// unasked explains pods rejected by the kubelet's Topology Manager, which the kubelet lists no longer.
const unasked = "for pods with status TopologyAffinityError the kubelet calls no plugin; " +
	"\"kubectl tandem explain NAMESPACE/POD\" compares such a pod with the node, and tandem doctor lists the " +
	"requests that this node rejects"

// emptyAnswer returns the reason for an empty answer; unread is the error of reading the pod.
func emptyAnswer(name podName, view kubelet.View, unread error, ours bool) error {
	pod := name.describe()
	switch {
	case unread != nil:
		return fmt.Errorf("explain %s: not among the last %d decisions, and unknown whether the pod runs "+
			"(kubelets report single pods from 1.34 on): %w; %s", pod, maxDecisions, unread, unasked)
	case len(view.Pods) == 0 && name.namespace == "":
		return fmt.Errorf("explain %s: not among the last %d decisions, and the kubelet of this node runs no such "+
			"pod of namespace default; %s", pod, maxDecisions, unasked)
	case len(view.Pods) == 0:
		return fmt.Errorf("explain %s: not among the last %d decisions, and the kubelet of this node runs no such "+
			"pod; %s", pod, maxDecisions, unasked)
	case ours:
		return fmt.Errorf("explain %s: the decision is older than the last %d decisions, and its record was lost "+
			"with a boot or the removal of the run folder", pod, maxDecisions)
	default:
		return errors.New("explain " + pod + ": the pod has no device of these plugins")
	}
}

// encodeOwner converts a container to its wire format, nil for nil; an empty UID means unknown.
func encodeOwner(c *kubelet.Container, uid string) *api.Owner {
	if c == nil {
		return nil
	}
	return &api.Owner{Namespace: c.Namespace, Pod: c.Pod.Name, Container: c.Name, Uid: uid}
}

// decodeOwner converts a container from its wire format, nil for nil.
func decodeOwner(o *api.Owner) *kubelet.Container {
	if o == nil {
		return nil
	}
	pod := kubelet.Pod{Namespace: o.GetNamespace(), Name: o.GetPod()}
	return &kubelet.Container{Pod: pod, Name: o.GetContainer()}
}

// encodePairs converts pairs to their wire format.
func encodePairs(pairs []placement.Pair) []*api.Pair {
	var encoded []*api.Pair
	for _, p := range pairs {
		encoded = append(encoded, &api.Pair{Gpu: p.GPU.ID, Vf: p.VF.ID, Distance: p.Distance.Level.String()})
	}
	return encoded
}
