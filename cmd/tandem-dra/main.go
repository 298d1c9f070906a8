// SPDX-License-Identifier: Apache-2.0

// Command tandem-dra is a Kubernetes DRA driver for GPUs and RDMA VFs: it publishes pairs on a common PCIe
// switch, and prepares the claims that the scheduler allocates. It replaces tandem-gpu and tandem-rdma.
package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/tandem-k8s/tandem/cmd/internal/daemon"
	"github.com/tandem-k8s/tandem/cmd/internal/gpus"
	"github.com/tandem-k8s/tandem/cmd/internal/vfs"
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
)

var help = daemon.Help{
	About: `tandem-dra is the DRA driver tandem.dev (Dynamic Resource Allocation, Kubernetes 1.34 and later). It publishes the node's GPUs and
VFs, and pairs of a GPU and a VF on one PCIe switch, as ResourceSlices, and prepares the devices that the scheduler allocates to
claims. It replaces tandem-gpu and tandem-rdma: a node uses either device plugins or DRA. The config.json of the SR-IOV network
device plugin selects the VFs; without this file all VFs with RDMA are published as tandem.dev/rdma_vf.`,
	Examples: `  tandem-dra --node-name=$NODE_NAME
  tandem-dra --config-file=/etc/pcidp/config.json --pulse=30 --log-format=json
  tandem-dra --alignment=required --vfs-per-pf=8
  tandem-dra --drain
  tandem-dra --sysfs-root=/tmp/node/sys --kubelet-dir=/tmp/node/kubelet --run-dir=/tmp/node/run --cdi-root=/tmp/node/cdi \
    --kubeconfig=/tmp/node/kubeconfig --node-name=node-1`,
	ExitCodes: `Exit codes:
  0  ended by SIGINT, SIGTERM or SIGQUIT
  1  failure, for example if the node is in device-plugin mode: the last line on standard error names the reason and a remedy
  2  invalid command line
`,
}

func main() {
	set := pflag.NewFlagSet("tandem-dra", pflag.ContinueOnError)
	var o options
	o.registerFlags(set)
	daemon.Main(set, &o.Flags, help, func(ctx context.Context, log *slog.Logger) error {
		klog.SetSlogLogger(log)
		o.given = set.Changed
		return daemon.Restarting(ctx, log, func(ctx context.Context, restart func()) error {
			return o.serveOnce(ctx, restart, log)
		})
	})
}

// options are the flags. Those that select and find GPUs and VFs are the flags of tandem-gpu and tandem-rdma.
type options struct {
	daemon.Flags
	gpus gpus.Flags
	vfs  vfs.Flags

	kubeconfig string
	podUID     string
	vfsPerPF   int
	pairsAsVFs bool
	drain      bool

	given func(flag string) bool // whether a flag is on the command line
}

func (o *options) registerFlags(set *pflag.FlagSet) {
	set.StringVar(&o.kubeconfig, "kubeconfig", "",
		"kubeconfig file for the API server (default the in-cluster configuration)")
	set.StringVar(&o.podUID, "pod-uid", os.Getenv("POD_UID"),
		"UID of this pod, for rolling updates in which the new pod starts before the old pod ends "+
			"(default $POD_UID)")
	set.IntVar(&o.vfsPerPF, "vfs-per-pf", pool.DefaultVFsPerPF,
		"maximum number of published VFs of a PF, 0 for all; more devices cost scheduling time")
	set.BoolVar(&o.pairsAsVFs, "pairs-as-vfs", false,
		"provide the VFs of pairs to Multus under the VFs' own resource name, so that networks of the "+
			"device plugins "+
			"need no change; pods then cannot request the extended resource tandem.dev/pair, only claims")
	set.BoolVar(&o.drain, "drain", false,
		"only unprepare claims, and publish no device; for a node in device-plugin mode with running pods that "+
			"still have claims")
	o.RegisterDriver(set)
	stock := o.gpus.RegisterDriver(set)
	o.vfs.Register(set, "amd-nic-exporter-socket")
	gpus.AddStock(set, stock)
}
