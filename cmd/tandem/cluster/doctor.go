package cluster

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/tandem-k8s/tandem/coordination/kubelet/configuration"
)

// ofDoctor are the flags of daemons that tell doctor where the folders of the node are.
var ofDoctor = map[string]string{
	"sysfs-root": "sysfs-root", "dev-root": "dev-root", "kubelet-dir": "kubelet-dir", "run-dir": "run-dir",
	"topology-file": "topology-file", "config-file": "config",
}

// Doctor returns what "tandem doctor" prints on a node, with an [ExitError] where it has found something. The
// kubelet's configuration is not in the daemon's pod: the kubelet is asked for it through the API server. Why
// that could not be done is the note; doctor says then that it does not know the configuration.
func (c *Cluster) Doctor(ctx context.Context, node, format string) (printed []byte, note string, err error) {
	daemons, err := c.daemons(ctx, node)
	if err != nil {
		return nil, "", err
	}
	args := []string{"doctor", "-o", format}
	configuration, err := c.configuration(ctx, node)
	if err != nil {
		note = err.Error()
	} else {
		args = append(args, "--kubelet-config=/dev/stdin")
	}
	printed, _, err = c.ask(ctx, prefer(daemons[node], "config-file"), func(d Daemon) []string {
		return append(args, d.flags(ofDoctor)...)
	}, configuration)
	if err != nil {
		err = fmt.Errorf("ask node %s: %w", node, err)
	}
	return printed, note, err
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
