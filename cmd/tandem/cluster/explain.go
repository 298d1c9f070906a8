// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

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
