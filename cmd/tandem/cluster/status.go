// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"golang.org/x/sync/errgroup"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
)

// Status is the status of all nodes of a cluster, as -o json prints it.
type Status struct {
	Version cli.V1       `json:"version"`
	Nodes   []NodeStatus `json:"nodes"` // by name
}

// NodeStatus is the status of a node with a daemon of Tandem's.
type NodeStatus struct {
	Name   string              `json:"name"`
	Daemon string              `json:"daemon,omitempty"` // namespace/pod that answered
	Error  string              `json:"error,omitempty"`  // why none did
	Status *coordinator.Status `json:"status,omitempty"` // what "tandem status -o json" prints there
}

// Answers reports whether a daemon of the node has answered.
func (n NodeStatus) Answers() bool { return n.Status != nil }

// atOnce is how many nodes are asked at the same time: each takes two connections of the API server.
const atOnce = 16

// Status asks the daemons of all nodes for their status. A node without an answer has an error; Status fails
// only if no node is found.
func (c *Cluster) Status(ctx context.Context) (Status, error) {
	daemons, err := c.Daemons(ctx)
	if err != nil {
		return Status{}, err
	}
	names := slices.Sorted(maps.Keys(daemons))
	s := Status{Nodes: make([]NodeStatus, len(names))}
	var all errgroup.Group
	all.SetLimit(atOnce)
	for i, name := range names {
		all.Go(func() error {
			s.Nodes[i] = c.node(ctx, name, daemons[name])
			return nil
		})
	}
	return s, all.Wait()
}

func (c *Cluster) node(ctx context.Context, name string, daemons []Daemon) NodeStatus {
	printed, by, err := c.ask(ctx, daemons, statusArgs, nil)
	if err != nil {
		return NodeStatus{Name: name, Error: err.Error()}
	}
	n := NodeStatus{Name: name, Daemon: by.Namespace + "/" + by.Pod, Status: &coordinator.Status{}}
	if err := json.Unmarshal(printed, n.Status); err != nil {
		return NodeStatus{Name: name, Error: fmt.Sprintf("%s: read the answer: %v", n.Daemon, err)}
	}
	n.Status.Notes = withPods(n.Status.Notes, daemons)
	return n
}

func statusArgs(d Daemon) []string {
	return append([]string{"status", "-o", "json"},
		d.flags(map[string]string{"run-dir": "run-dir", "kubelet-dir": "kubelet-dir"})...)
}

// Table is for people: the totals, and a line for each node.
func (s Status) Table() []byte {
	var out bytes.Buffer
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
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NODE\tMODE\tFREE GPUS\tFREE VFS\tPAIRS LEFT\tDEGRADED\tVERSION\tNOTES")
	for _, n := range s.Nodes {
		columns := n.columns()
		for i, column := range columns {
			columns[i] = cli.Printable(column)
		}
		fmt.Fprintln(w, strings.Join(columns, "\t"))
	}
	w.Flush() // into memory
	return out.Bytes()
}

func (n NodeStatus) columns() []string {
	s := n.Status
	if s == nil {
		return []string{n.Name, "?", "?", "?", "?", "?", "?", "NO ANSWER: " + n.Error}
	}
	return []string{
		n.Name, s.Mode, s.Totals.GPUs.String(), s.Totals.VFs.String(), fmt.Sprint(s.Totals.Pairs),
		fmt.Sprint(len(s.Degraded)), versions(s), notes(s),
	}
}

// versions are those of the programs on a node: one, unless a rollout is under way.
func versions(s *coordinator.Status) string {
	var list []string
	for _, p := range s.Plugins {
		list = append(list, cmp.Or(p.Version, "?"))
	}
	slices.Sort(list)
	return cmp.Or(strings.Join(slices.Compact(list), ","), "?")
}

// notes are what is not as it should be, in short; "tandem status" on the node has it at length.
func notes(s *coordinator.Status) string {
	var list []string
	if s.Kubelet != nil && s.Kubelet.State == coordinator.KubeletDown {
		list = append(list, "kubelet down")
	}
	for _, r := range s.Resources {
		switch {
		case !r.Connected:
			list = append(list, r.Name+" stale (its plugin is away, devices as last known)")
		case r.Registered != nil && !*r.Registered:
			list = append(list, r.Name+" not registered")
		}
	}
	if s.Alignment.Unenforced() != "" {
		list = append(list, "alignment not enforced")
	}
	for _, d := range s.Degraded {
		list = append(list, fmt.Sprintf("%s degraded: kubectl tandem explain %s", d.Container, d.Pod()))
	}
	return cmp.Or(strings.Join(slices.Concat(list, s.Unsound(), s.Notes), "; "), "-")
}
