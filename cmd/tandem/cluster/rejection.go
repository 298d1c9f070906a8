// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
	"github.com/tandem-k8s/tandem/cmd/tandem/rejection"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/configuration"
)

// rejection explains a pod that the kubelet's Topology Manager has rejected.
func (c *Cluster) rejection(
	ctx context.Context, pod *corev1.Pod, daemons []Daemon, format string,
) ([]byte, error) {
	node := c.node(ctx, pod.Spec.NodeName, daemons)
	if node.Status == nil {
		return nil, fmt.Errorf("ask node %s for its free devices: %w", pod.Spec.NodeName, errors.New(node.Error))
	}
	r := rejection.Explain(pod, node.Status, kubelet.Read(c.allDecisions(ctx, daemons)),
		c.topologyManager(ctx, pod.Spec.NodeName))
	if format != "json" {
		return r.Text(), nil
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(rejection.Explanation{Decisions: []coordinator.Decision{}, Rejection: &r})
	return out.Bytes(), err
}

// allDecisions returns the decisions that the plugins of a node know.
func (c *Cluster) allDecisions(ctx context.Context, daemons []Daemon) ([]coordinator.Decision, error) {
	printed, err := c.onNode(ctx, daemons, "explain", "-o", "json")
	if err != nil {
		return nil, err
	}
	var known rejection.Explanation
	err = json.Unmarshal(printed, &known)
	return known.Decisions, err
}

// topologyManager returns the settings of a node's Topology Manager. Reading these needs the right to read
// the kubelet's configuration.
func (c *Cluster) topologyManager(ctx context.Context, node string) rejection.Manager {
	answer, err := c.configz(ctx, node)
	if err != nil {
		return rejection.NewManager(configuration.Settings{}, err)
	}
	return rejection.NewManager(configuration.Parse(answer))
}
