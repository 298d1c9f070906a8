// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/managers"
	"github.com/tandem-k8s/tandem/cmd/tandem/document"
	"github.com/tandem-k8s/tandem/cmd/tandem/rejection"
	"github.com/tandem-k8s/tandem/coordination/kubelet/devicemanager"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
)

// Explanation is the explanation of a pod, as -o json prints it: the decisions of the plugins or, for a pod
// that the kubelet's Topology Manager has rejected, the comparison with the node.
type Explanation struct {
	Version   document.V1            `json:"version"`
	Decisions []coordinator.Decision `json:"decisions"`
	Rejection *rejection.Rejection   `json:"rejection,omitempty"`
}

// rejection explains a pod that the kubelet's Topology Manager has rejected.
func (c *Cluster) rejection(
	ctx context.Context, pod *corev1.Pod, daemons []Daemon, format string,
) ([]byte, error) {
	node := c.node(ctx, pod.Spec.NodeName, daemons)
	if node.Status == nil {
		return nil, fmt.Errorf("ask node %s for its free devices: %w", pod.Spec.NodeName, errors.New(node.Error))
	}
	r := rejection.Explain(pod, node.Status, c.topologyManager(ctx, pod.Spec.NodeName))
	if format != "json" {
		return r.Text(), nil
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(Explanation{Decisions: []coordinator.Decision{}, Rejection: &r})
	return out.Bytes(), err
}

// topologyManager returns the settings of a node's Topology Manager. Without the right to read the kubelet's
// configuration, the settings are those that Tandem requires.
func (c *Cluster) topologyManager(ctx context.Context, node string) (k devicemanager.Kubelet) {
	k.Rule.Policy = hints.Restricted
	answer, err := c.configuration(ctx, node)
	if err != nil {
		return k
	}
	var told struct {
		Policy  hints.Policy      `json:"topologyManagerPolicy"`
		Scope   string            `json:"topologyManagerScope"`
		Options map[string]string `json:"topologyManagerPolicyOptions"`
	}
	if json.Unmarshal(answer, &told) != nil {
		return k
	}
	if told.Policy == hints.SingleNUMANode { // other policies reject no pod: then the policy has changed since
		k.Rule.Policy = told.Policy
	}
	k.ScopePod = told.Scope == "pod"
	k.Rule.MaxNodes, _ = strconv.Atoi(told.Options[managers.MaxNodes]) // none is 0
	return k
}
