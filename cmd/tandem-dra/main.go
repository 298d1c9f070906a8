// SPDX-License-Identifier: Apache-2.0

// Command tandem-dra is a Kubernetes DRA driver for GPUs and RDMA VFs: it publishes pairs on a common PCIe
// switch, and prepares the claims that the scheduler allocates. It replaces tandem-gpu and tandem-rdma.
package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

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
		return o.run(ctx, log)
	})
}

// errAnew is the cause of a restart: a signal, or a GPU driver that became available.
var errAnew = errors.New("start over")

// run serves until ctx is done. It starts over on every SIGHUP, the signal of a changed configuration, and
// when GPUs become available.
func (o *options) run(ctx context.Context, log *slog.Logger) error {
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)
	for {
		attempt, cancel := context.WithCancelCause(ctx)
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			select {
			case <-reload:
				cancel(errAnew)
			case <-attempt.Done():
			}
		}()
		err := o.once(attempt, func() { cancel(errAnew) }, log)
		cancel(nil)
		<-stopped
		if err != nil && !errors.Is(err, context.Canceled) || !errors.Is(context.Cause(attempt), errAnew) {
			return err
		}
		log.Info("start over: the configuration may be another one, or there may be more GPUs")
	}
}
