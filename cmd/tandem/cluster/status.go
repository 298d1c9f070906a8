// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
	"github.com/tandem-k8s/tandem/cmd/tandem/document"
)

// Status is the status of all nodes of a cluster, as -o json prints it.
type Status struct {
	Version document.V1  `json:"version"`
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
