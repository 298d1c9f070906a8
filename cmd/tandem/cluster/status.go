// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/spelling"
)

// Status is the status of all nodes of a cluster, as -o json prints it.
type Status struct {
	Version cli.V1       `json:"version"`
	Nodes   []nodeStatus `json:"nodes"` // by name
}

// nodeStatus is the status of a node with a daemon of Tandem's.
type nodeStatus struct {
	Name   string              `json:"name"`
	Daemon string              `json:"daemon,omitempty"` // namespace/pod that answered
	Error  string              `json:"error,omitempty"`  // why none did
	Status *coordinator.Status `json:"status,omitempty"` // what "tandem status -o json" prints there
}

// HasAnswer reports whether a daemon of the node has answered.
func (n nodeStatus) HasAnswer() bool { return n.Status != nil }

// atOnce is how many nodes are asked at the same time: each takes two connections of the API server.
const atOnce = 16

// Status asks the daemons of all nodes for their status. A node without an answer has an error; Status fails
// only if no node is found.
func (c *cluster) Status(ctx context.Context) (Status, error) {
	daemons, err := c.findDaemons(ctx, "")
	if err != nil {
		return Status{}, err
	}
	names := slices.Sorted(maps.Keys(daemons))
	s := Status{Nodes: make([]nodeStatus, len(names))}
	var all errgroup.Group
	all.SetLimit(atOnce)
	for i, name := range names {
		all.Go(func() error {
			s.Nodes[i] = c.askStatus(ctx, name, daemons[name])
			return nil
		})
	}
	return s, all.Wait()
}

func (c *cluster) askStatus(ctx context.Context, name string, daemons []daemon) nodeStatus {
	printed, by, err := c.askDaemon(ctx, daemons, []string{"status", "-o", "json"},
		map[string]string{"run-dir": "run-dir", "kubelet-dir": "kubelet-dir"}, nil)
	if err != nil {
		return nodeStatus{Name: name, Error: err.Error()}
	}
	n := nodeStatus{Name: name, Daemon: by.Namespace + "/" + by.Pod, Status: &coordinator.Status{}}
	if err := json.Unmarshal(printed, n.Status); err != nil {
		return nodeStatus{Name: name, Error: fmt.Sprintf("%s: read the answer: %v", n.Daemon, err)}
	}
	n.Status.Notes = withPods(n.Status.Notes, daemons)
	return n
}

// Table is for people: the totals, and a line for each node.
func (s Status) Table() *cli.Text {
	var out cli.Text
	var t coordinator.Totals
	answers, degraded := 0, 0
	for _, n := range s.Nodes {
		if n.Status != nil {
			answers++
			t.Add(n.Status.Totals)
			degraded += len(n.Status.Degraded)
		}
	}
	fmt.Fprintf(&out, "%d of %d nodes answer: GPUs free %s, VFs free %s, same-switch pairs left %d, "+
		"degraded containers %d\n\n", answers, len(s.Nodes), t.GPUs, t.VFs, t.Pairs, degraded)
	out.Row("NODE", "MODE", "FREE GPUS", "FREE VFS", "PAIRS LEFT", "DEGRADED", "VERSION", "NOTES")
	for _, n := range s.Nodes {
		out.Row(n.cellsOfNode()...)
	}
	return &out
}

func (n nodeStatus) cellsOfNode() []any {
	s := n.Status
	if s == nil {
		return []any{
			n.Name, "?", "?", "?", "?", "?", "?", cli.NewCell(cli.Bad.Of("NO ANSWER"), ": ", n.Error),
		}
	}
	return []any{
		n.Name, s.Mode, s.Totals.GPUs, s.Totals.VFs, s.Totals.Pairs, len(s.Degraded), listVersions(s), listNotes(s),
	}
}

// listVersions are those of the programs on a node: one, unless a rollout is under way.
func listVersions(s *coordinator.Status) string {
	var list []string
	for _, p := range s.Plugins {
		list = append(list, cmp.Or(p.Version, "?"))
	}
	slices.Sort(list)
	return cmp.Or(strings.Join(slices.Compact(list), ","), "?")
}

// listNotes are what is not as it should be, in short; "tandem status" on the node has it at length.
func listNotes(s *coordinator.Status) cli.Cell {
	var list []any
	if s.Kubelet.IsDown() {
		list = append(list, cli.Bad.Of("kubelet down"))
	}
	for _, r := range s.Resources {
		switch {
		case !r.Connected:
			list = append(list, r.Name+" stale (its plugin is away, devices as last known)")
		case r.Registered != nil && !*r.Registered:
			list = append(list, r.Name+" not registered")
		}
	}
	if s.Alignment.WhyUnenforced() != "" {
		list = append(list, "alignment not enforced")
	}
	for _, d := range s.Degraded {
		list = append(list, cli.NewCell(d.Container, " ", cli.Doubtful.Of("degraded"),
			": kubectl tandem explain ", d.Pod()))
	}
	for _, text := range s.ListUnsound() {
		list = append(list, text)
	}
	for _, note := range s.Notes {
		list = append(list, note)
	}
	return cli.JoinCells(list, "; ")
}

// Explain returns the output of "tandem explain" on the node of a pod, or with "" on the node that the API
// server has. For a pod that the kubelet's Topology Manager has rejected, Explain compares the pod with the
// status of the node instead. The namespace may be "" for that of the kubeconfig.
func (c *cluster) Explain(
	ctx context.Context, q coordinator.PodQuestion, node, format string,
) (*cli.Text, error) {
	if q.Namespace == "" {
		q.Namespace = c.options.Namespace
	}
	var pod *corev1.Pod
	if node == "" {
		var err error
		pod, err = c.findPod(ctx, q.Namespace, q.Pod)
		if err != nil {
			return nil, err
		}
		node = pod.Spec.NodeName
		q.Present.UID, q.Present.Created = string(pod.UID), pod.CreationTimestamp.Time
	}
	daemons, err := c.findDaemons(ctx, node)
	if err != nil {
		return nil, err
	}
	if pod != nil && intent.IsRejected(pod) {
		return c.explainRejection(ctx, pod, daemons[node], format)
	}
	explanation, err := c.askDecisions(ctx, q, daemons[node], format)
	switch {
	case err == nil:
		return explanation, nil
	case strings.Contains(err.Error(), noClaim) && pod != nil && kubelet.HasEnded(pod):
		return nil, fmt.Errorf("explain pod %s/%s: the pod has ended (%s); its claims are released, and the DRA "+
			"driver of node %s keeps no decisions for ended pods", q.Namespace, q.Pod, pod.Status.Phase, node)
	default:
		return nil, fmt.Errorf("ask node %s: %w", node, err)
	}
}

// askDecisions returns the output of "tandem explain" on the node of daemons.
func (c *cluster) askDecisions(
	ctx context.Context, q coordinator.PodQuestion, daemons []daemon, format string,
) (*cli.Text, error) {
	args := []string{"explain", q.Namespace + "/" + q.Pod}
	if q.Container != "" {
		args = append(args, "--container", q.Container)
	}
	if known := q.Present; known.UID != "" {
		args = append(args, "--created="+known.Created.UTC().Format(time.RFC3339), "--uid="+known.UID)
	}
	if q.All {
		args = append(args, "--all")
	}
	return c.askText(ctx, daemons, args, ofExplain, nil, format)
}

// ofExplain lists the daemons' flags for explain.
var ofExplain = map[string]string{"run-dir": "run-dir"}

// noClaim is in the error of the DRA driver about a pod without prepared and refused claims.
const noClaim = "no claim of "

// findPod returns a pod that has a node.
func (c *cluster) findPod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
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
func (c *cluster) Pods(ctx context.Context, namespace string) ([]string, error) {
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
