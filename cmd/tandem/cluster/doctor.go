// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
	"github.com/tandem-k8s/tandem/cmd/tandem/doctor"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// ofDoctor lists the daemons' flags with folders of the node, for doctor.
var ofDoctor = map[string]string{
	"sysfs-root": "sysfs-root", "dev-root": "dev-root", "kubelet-dir": "kubelet-dir", "run-dir": "run-dir",
	"topology-file": "topology-file", "config-file": "config",
}

// Doctor returns the output of "tandem doctor" on a node, for containers with a number of CPUs, and an
// [exitError] for findings. The daemon's pod
// lacks the kubelet's configuration, so Doctor reads the configuration from the kubelet through the API
// server, and the rejected pods from the API server. A failed read results in a note; doctor then
// reports the data as unknown.
func (c *cluster) Doctor(
	ctx context.Context, node string, cpus int, format string,
) (report *cli.Text, notes []string, err error) {
	daemons, err := c.findDaemons(ctx, node)
	if err != nil {
		return nil, nil, err
	}
	args := []string{"doctor", "--read-elsewhere=" + node}
	if cpus > 0 {
		args = append(args, fmt.Sprintf("--cpus=%d", cpus))
	}
	configuration, err := c.readConfiguration(ctx, node)
	if err != nil {
		notes = append(notes, err.Error())
	} else {
		args = append(args, "--kubelet-config=/dev/stdin")
	}
	if d, found := findProgram(daemons[node], gpuProgram); found && d.Flags["vendor"] != "" {
		args = append(args, "--gpu-vendor="+d.Flags["vendor"])
	}
	refused, err := c.listRefused(ctx, node)
	if err != nil {
		notes = append(notes, err.Error())
	} else {
		for _, value := range refused.Flags() {
			args = append(args, "--refused-pods="+value)
		}
	}
	asked := preferWithFlag(daemons[node], "config-file")
	report, err = c.askText(ctx, asked, args, ofDoctor, configuration, format)
	if err != nil {
		err = fmt.Errorf("ask node %s: %w", node, err)
	}
	return report, notes, err
}

// listRefused returns the pods of a node that the kubelet rejected for their NUMA nodes.
func (c *cluster) listRefused(ctx context.Context, node string) (refused doctor.RefusedPods, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	selector := fields.Set{"spec.nodeName": node, "status.phase": string(corev1.PodFailed)}
	var pods corev1.PodList
	err = c.server.Get().Resource("pods").Param("fieldSelector", selector.String()).Do(ctx).Into(&pods)
	if err != nil {
		return refused, fmt.Errorf("list failed pods of %s: %w", node, err)
	}
	for i := range pods.Items {
		if intent.IsRejected(&pods.Items[i]) {
			refused.Add(&pods.Items[i])
		}
	}
	return refused, nil
}

// readConfiguration returns the effective configuration of a node's kubelet, including flags and drop-ins
// (/configz), as a configuration file.
func (c *cluster) readConfiguration(ctx context.Context, node string) ([]byte, error) {
	answer, err := c.readConfigz(ctx, node)
	if err != nil {
		return nil, err
	}
	var told struct {
		Configuration map[string]any `json:"kubeletconfig"`
	}
	if err := json.Unmarshal(answer, &told); err != nil {
		return nil, fmt.Errorf("read the configuration of the kubelet of %s: %w", node, err)
	}
	if told.Configuration == nil {
		return nil, fmt.Errorf("read the configuration of the kubelet of %s: the answer has no kubeletconfig", node)
	}
	told.Configuration["kind"], told.Configuration["apiVersion"] = kubelet.ConfigKind, kubelet.ConfigVersion
	return json.Marshal(told.Configuration)
}

// readConfigz returns the answer of a node's kubelet to /configz.
func (c *cluster) readConfigz(ctx context.Context, node string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	answer, err := c.server.Get().Resource("nodes").Name(node).SubResource("proxy").Suffix("configz").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask the kubelet of %s for its configuration (nodes/proxy): %w", node, err)
	}
	return answer, nil
}

// explainRejection explains a pod that the kubelet's Topology Manager has rejected.
func (c *cluster) explainRejection(
	ctx context.Context, pod *corev1.Pod, daemons []daemon, format string,
) (*cli.Text, error) {
	node := c.askStatus(ctx, pod.Spec.NodeName, daemons)
	if node.Status == nil {
		return nil, fmt.Errorf("ask node %s for its free devices: %w", pod.Spec.NodeName, errors.New(node.Error))
	}
	r := coordinator.ExplainRejection(pod, node.Status, kubelet.Read(c.allDecisions(ctx, daemons)),
		kubelet.Read(c.readSettings(ctx, pod.Spec.NodeName)))
	output := cli.Output{Format: format}
	return output.Text(coordinator.PodExplanation{Decisions: []coordinator.Decision{}, Rejection: &r}, r.Text)
}

// allDecisions returns the decisions that the plugins of a node know.
func (c *cluster) allDecisions(ctx context.Context, daemons []daemon) ([]coordinator.Decision, error) {
	printed, _, err := c.askDaemon(ctx, daemons, []string{"explain", "-o", cli.AsJSON}, ofExplain, nil)
	if err != nil {
		return nil, err
	}
	var known coordinator.PodExplanation
	err = json.Unmarshal(printed, &known)
	return known.Decisions, err
}

// readSettings returns the settings of a node's kubelet, which needs the right to read its configuration.
func (c *cluster) readSettings(ctx context.Context, node string) (kubelet.Settings, error) {
	answer, err := c.readConfigz(ctx, node)
	if err != nil {
		return kubelet.Settings{}, err
	}
	return kubelet.ParseConfigz(answer)
}
