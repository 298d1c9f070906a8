// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/spelling"
)

// Question is about a pod, for Explain.
type Question struct {
	Namespace string // "" for that of the kubeconfig
	Pod       string
	Container string // "" for all of the pod
	Node      string // on which the pod is, or was; "" for the one that the API server tells
	All       bool   // also show the decisions for deleted pods of the same name
	Format    string // "table" or "json"
}

// Explain finds the node of a pod and returns the output of "tandem explain" there. For a pod that the
// kubelet's Topology Manager has rejected, Explain compares the pod with the status of the node instead.
func (c *Cluster) Explain(ctx context.Context, q Question) ([]byte, error) {
	if q.Namespace == "" {
		q.Namespace = c.options.Namespace
	}
	var pod *corev1.Pod
	if q.Node == "" {
		var err error
		if pod, err = c.pod(ctx, q.Namespace, q.Pod); err != nil {
			return nil, err
		}
		q.Node = pod.Spec.NodeName
	}
	daemons, err := c.daemons(ctx, q.Node)
	if err != nil {
		return nil, err
	}
	if pod != nil && intent.IsRejected(pod) {
		return c.rejection(ctx, pod, daemons[q.Node], q.Format)
	}
	printed, err := c.decisions(ctx, q, pod, daemons[q.Node])
	if err != nil && strings.Contains(err.Error(), noClaim) && pod != nil && kubelet.HasEnded(pod) {
		return nil, fmt.Errorf("explain pod %s/%s: the pod has ended (%s); its claims are released, and the DRA "+
			"driver of node %s keeps no decisions for ended pods", q.Namespace, q.Pod, pod.Status.Phase, q.Node)
	}
	return printed, err
}

// decisions returns the output of "tandem explain" on a node. The pod may be nil, if unknown.
func (c *Cluster) decisions(
	ctx context.Context, q Question, pod *corev1.Pod, daemons []Daemon,
) ([]byte, error) {
	older := []string{"explain", q.Namespace + "/" + q.Pod, "-o", q.Format}
	if q.Container != "" {
		older = append(older, "--container", q.Container)
	}
	newer := slices.Clone(older)
	if pod != nil {
		newer = append(newer, "--created="+pod.CreationTimestamp.UTC().Format(time.RFC3339),
			"--uid="+string(pod.UID))
	}
	if q.All {
		newer = append(newer, "--all")
	}
	printed, err := c.onNode(ctx, daemons, newer...)
	if err != nil && strings.Contains(err.Error(), unknownFlag) {
		printed, err = c.onNode(ctx, daemons, older...)
	}
	if err != nil {
		return nil, fmt.Errorf("ask node %s: %w", q.Node, err)
	}
	return printed, nil
}

// onNode returns the output of a command of tandem about the plugins of a node.
func (c *Cluster) onNode(ctx context.Context, daemons []Daemon, args ...string) ([]byte, error) {
	printed, _, err := c.ask(ctx, daemons, func(d Daemon) []string {
		return append(slices.Clone(args), d.flags(map[string]string{"run-dir": "run-dir"})...)
	}, nil)
	return printed, err
}

// noClaim is in the error of the DRA driver about a pod without prepared and refused claims.
const noClaim = "no claim of "

// pod returns a pod that has a node.
func (c *Cluster) pod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	var pod corev1.Pod
	err := c.server.Get().Namespace(namespace).Resource("pods").Name(name).Do(ctx).Into(&pod)
	switch {
	case apierrors.IsNotFound(err):
		proposal := ""
		if pods, err := c.Pods(ctx, namespace); err == nil {
			proposal = spelling.Question(name, pods)
		}
		return nil, fmt.Errorf("find pod %s/%s: it is not there%s; --node NODE asks a node about a pod that has "+
			"gone", namespace, name, proposal)
	case err != nil:
		return nil, fmt.Errorf("find pod %s/%s: %w", namespace, name, err)
	case pod.Spec.NodeName == "":
		return nil, fmt.Errorf("find node of pod %s/%s: it has none yet; kubectl describe pod tells why",
			namespace, name)
	}
	return &pod, nil
}

// Pods are the names of the pods in a namespace, "" for that of the kubeconfig.
func (c *Cluster) Pods(ctx context.Context, namespace string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	if namespace == "" {
		namespace = c.options.Namespace
	}
	var pods corev1.PodList
	if err := c.server.Get().Namespace(namespace).Resource("pods").Do(ctx).Into(&pods); err != nil {
		return nil, fmt.Errorf("list pods of namespace %s: %w", namespace, err)
	}
	var names []string
	for i := range pods.Items {
		names = append(names, pods.Items[i].Name)
	}
	return names, nil
}

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
