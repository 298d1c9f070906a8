// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/coordination/spelling"
)

// Daemons returns the daemons by node.
func (c *Cluster) Daemons(ctx context.Context) (map[string][]Daemon, error) {
	return c.daemons(ctx, "")
}

// daemons returns the daemons of a node, or with "" of all nodes.
func (c *Cluster) daemons(ctx context.Context, node string) (map[string][]Daemon, error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	release, err := c.release(ctx)
	if err != nil {
		return nil, err
	}
	request := c.server.Get().Namespace(release.namespace).Resource("pods").
		Param("labelSelector", c.options.Selector)
	if node != "" {
		request.Param("fieldSelector", "spec.nodeName="+node)
	}
	var pods corev1.PodList
	if err := request.Do(ctx).Into(&pods); err != nil {
		return nil, fmt.Errorf("list pods of Tandem's daemons: %w", err)
	}
	nodes := byNode(slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return !release.made(&pod) }))
	if len(nodes) == 0 {
		return nil, fmt.Errorf(
			"find Tandem's daemons: no DaemonSet of namespace %s has a pod%s that is labelled %s%s",
			release.namespace, on(node), c.options.Selector, c.similarNode(ctx, node))
	}
	return nodes, nil
}

// similarNode asks for a node with a daemon and a similar name.
func (c *Cluster) similarNode(ctx context.Context, node string) string {
	if node == "" {
		return ""
	}
	daemons, _ := c.daemons(ctx, "") // without an answer there is no proposal
	return spelling.Question(node, slices.Sorted(maps.Keys(daemons)))
}

func on(node string) string {
	if node == "" {
		return ""
	}
	return " on node " + node
}

// release is the DaemonSets of Tandem in one namespace.
//
// A user with the right to create pods can set the labels, the name and the owner reference of a daemon, and
// a user with the right to create DaemonSets the labels. A pod therefore counts only if created by a
// DaemonSet of the release with pods, and if the pod mounts a folder of the node, as each daemon does: Pod
// Security denies hostPath volumes to tenants, and a user with that right can access the node anyway. All
// DaemonSets are in the namespace named by the caller, or in the only namespace with such DaemonSets.
type release struct {
	namespace string
	sets      map[types.UID]bool
}

// release returns the DaemonSets of Tandem.
func (c *Cluster) release(ctx context.Context) (release, error) {
	found, idle, err := c.daemonSets(ctx)
	if err != nil {
		return release{}, err
	}
	sets := map[string]map[types.UID]bool{}
	for _, set := range found {
		if sets[set.Namespace] == nil {
			sets[set.Namespace] = map[types.UID]bool{}
		}
		sets[set.Namespace][set.UID] = true
	}
	namespaces := slices.Sorted(maps.Keys(sets))
	switch {
	case len(namespaces) == 0 && idle:
		return release{}, fmt.Errorf("find Tandem's daemons: the DaemonSets in %s with pods labelled %s have no "+
			"pod: no node matches their node selector (is the label tandem.dev/node missing on the nodes?)",
			c.where(), c.options.Selector)
	case len(namespaces) == 0:
		return release{}, fmt.Errorf("find Tandem's daemons: Tandem is not installed (no DaemonSet in %s has pods "+
			"labelled %s that mount a folder of the node); --tandem-namespace and --selector select other DaemonSets",
			c.where(), c.options.Selector)
	case len(namespaces) > 1:
		return release{}, fmt.Errorf("find Tandem's daemons: DaemonSets with such pods are in the namespaces %s; "+
			"say with --tandem-namespace which of them Tandem is in", strings.Join(namespaces, ", "))
	}
	return release{namespaces[0], sets[namespaces[0]]}, nil
}

// where returns the searched place, for people.
func (c *Cluster) where() string {
	if c.options.Daemons == "" {
		return "all namespaces"
	}
	return "namespace " + c.options.Daemons
}

// daemonSets returns the DaemonSets with pods that can be daemons, and whether there are such DaemonSets
// without a pod.
func (c *Cluster) daemonSets(ctx context.Context) (sets []appsv1.DaemonSet, idle bool, err error) {
	selector, err := labels.Parse(c.options.Selector)
	if err != nil {
		return nil, false, fmt.Errorf("read selector: %w", err)
	}
	path := []string{"apis", "apps", "v1", "daemonsets"}
	if c.options.Daemons != "" {
		path = []string{"apis", "apps", "v1", "namespaces", c.options.Daemons, "daemonsets"}
	}
	answer, err := c.server.Get().AbsPath(path...).DoRaw(ctx)
	if err != nil {
		return nil, false, fmt.Errorf("list DaemonSets of %s: %w", c.where(), err)
	}
	var list appsv1.DaemonSetList
	if err := json.Unmarshal(answer, &list); err != nil {
		return nil, false, fmt.Errorf("list DaemonSets of %s: %w", c.where(), err)
	}
	for _, set := range list.Items {
		switch template := &set.Spec.Template; {
		case !mountsNode(&template.Spec) || !selector.Matches(labels.Set(template.Labels)):
		case set.Status.CurrentNumberScheduled == 0:
			idle = true
		default:
			sets = append(sets, set)
		}
	}
	return sets, idle, nil
}

// made reports whether a DaemonSet of the release has created a pod.
func (r release) made(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "DaemonSet" && owner.APIVersion == appsv1.SchemeGroupVersion.String() &&
		pod.Namespace == r.namespace && r.sets[owner.UID] && mountsNode(&pod.Spec)
}

// mountsNode reports whether a pod mounts a folder of its node.
func mountsNode(pod *corev1.PodSpec) bool {
	return slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.HostPath != nil })
}
