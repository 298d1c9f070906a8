// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/tandem-k8s/tandem/cmd/tandem/doctor"
	"github.com/tandem-k8s/tandem/coordination/kubelet/configuration"
)

// ofDoctor are the flags of daemons that tell doctor where the folders of the node are.
var ofDoctor = map[string]string{
	"sysfs-root": "sysfs-root", "dev-root": "dev-root", "kubelet-dir": "kubelet-dir", "run-dir": "run-dir",
	"topology-file": "topology-file", "config-file": "config",
}

// Doctor returns what "tandem doctor" prints on a node, with an [ExitError] where it has found something. The
// kubelet's configuration is not in the daemon's pod: the kubelet is asked for it through the API server,
// which tells of refused pods too. Why one of them could not be asked is a note; doctor says then what it
// does not know.
func (c *Cluster) Doctor(
	ctx context.Context, node, format string,
) (printed []byte, notes []string, err error) {
	daemons, err := c.daemons(ctx, node)
	if err != nil {
		return nil, nil, err
	}
	args := []string{"doctor", "-o", format}
	configuration, err := c.configuration(ctx, node)
	if err != nil {
		notes = append(notes, err.Error())
	} else {
		args = append(args, "--kubelet-config=/dev/stdin")
	}
	refused, err := c.refused(ctx, node)
	if err != nil {
		notes = append(notes, err.Error())
	} else {
		args = append(args, fmt.Sprintf("--refused-pods=%d", refused))
	}
	printed, _, err = c.ask(ctx, prefer(daemons[node], "config-file"), func(d Daemon) []string {
		return append(args, d.flags(ofDoctor)...)
	}, configuration)
	if err != nil {
		err = fmt.Errorf("ask node %s: %w", node, err)
	}
	return printed, notes, err
}

// refused counts the pods that lie on a node since its kubelet has refused them for their NUMA nodes.
func (c *Cluster) refused(ctx context.Context, node string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	selector := fields.Set{"spec.nodeName": node, "status.phase": string(corev1.PodFailed)}
	var pods corev1.PodList
	err := c.server.Get().Resource("pods").Param("fieldSelector", selector.String()).Do(ctx).Into(&pods)
	if err != nil {
		return 0, fmt.Errorf("list failed pods of %s: %w", node, err)
	}
	count := 0
	for i := range pods.Items {
		if doctor.IsRefused(&pods.Items[i]) {
			count++
		}
	}
	return count, nil
}

// configuration is what the kubelet of a node goes by, flags and drop-ins included (/configz), as a file of
// its configuration.
func (c *Cluster) configuration(ctx context.Context, node string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	answer, err := c.server.Get().Resource("nodes").Name(node).SubResource("proxy").Suffix("configz").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask the kubelet of %s for its configuration (nodes/proxy): %w", node, err)
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
	told.Configuration["kind"], told.Configuration["apiVersion"] = configuration.Kind, configuration.Version
	return json.Marshal(told.Configuration)
}
