// SPDX-License-Identifier: Apache-2.0

// Command tandem-dra is a Kubernetes DRA driver for GPUs and RDMA VFs: it publishes pairs on a common PCIe
// switch, and prepares the claims that the scheduler allocates. It replaces tandem-gpu and tandem-rdma.
package main

import (
	"context"
	"log/slog"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/tandem-k8s/tandem/cmd/internal/daemon"
)

var help = daemon.Help{
	About: `tandem-dra publishes a node's GPUs and VFs, and pairs of them that hang on one PCIe switch, as ResourceSlices of the driver
tandem.dev, and gives pods the devices that the scheduler allocates to their claims (Dynamic Resource Allocation, Kubernetes 1.34
and later). It takes the place of tandem-gpu and tandem-rdma: a node is in one mode. VFs are selected by the config.json of the
SR-IOV network device plugin; without that file they are all VFs with RDMA, under the name tandem.dev/rdma_vf.`,
	Examples: `  tandem-dra --node-name=$NODE_NAME
  tandem-dra --config-file=/etc/pcidp/config.json --pulse=30 --log-format=json
  tandem-dra --alignment=required --vfs-per-pf=8
  tandem-dra --drain
  tandem-dra --sysfs-root=/tmp/node/sys --kubelet-dir=/tmp/node/kubelet --run-dir=/tmp/node/run --cdi-root=/tmp/node/cdi \
    --kubeconfig=/tmp/node/kubeconfig --node-name=node-1`,
	ExitCodes: `Exit codes:
  0  ended by SIGINT, SIGTERM or SIGQUIT
  1  cannot work: the last line on standard error says why and what to do; the mode of the node is a reason too
  2  the command line is wrong
`,
}

func main() {
	set := pflag.NewFlagSet("tandem-dra", pflag.ContinueOnError)
	var o options
	o.register(set)
	daemon.Main(set, &o.Flags, help, func(ctx context.Context, log *slog.Logger) error {
		klog.SetSlogLogger(log)
		o.given = set.Changed
		return daemon.Restarting(ctx, log, func(ctx context.Context, restart func()) error {
			return o.once(ctx, restart, log)
		})
	})
}
