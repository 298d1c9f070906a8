// SPDX-License-Identifier: Apache-2.0

// Command tandem-gpu is a Kubernetes device plugin for GPUs. It offers the same resources as AMD's and
// NVIDIA's own plugins, under the same names, and places a container's GPUs on the PCIe switches of the VFs
// from tandem-rdma.
package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/tandem-k8s/tandem/cmd/internal/daemon"
	"github.com/tandem-k8s/tandem/cmd/internal/gpus"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/plugins/gpu"
)

var help = daemon.Help{
	About: `tandem-gpu is a device plugin for the GPUs of a node. Together with tandem-rdma it assigns GPUs and VFs on the same PCIe
switches to a container; alone it selects only GPUs.`,
	Examples: `  tandem-gpu
  tandem-gpu --resource_naming_strategy=mixed --pulse=30 --log-format=json
  tandem-gpu --vendor=nvidia --mig-strategy=mixed --config-file=/config/config.yaml
  tandem-gpu --sysfs-root=/tmp/node/sys --kubelet-dir=/tmp/node/kubelet --run-dir=/tmp/node/run`,
	ExitCodes: `Exit codes:
  0  ended by SIGINT, SIGTERM or SIGQUIT
  1  failure, or an invalid strategy of the stock plugins: the last line on standard error names the reason and a remedy
  2  invalid command line
`,
}

func main() {
	program := filepath.Base(os.Args[0])
	var flags daemon.Flags
	var ofVendors gpus.Flags
	own, stock := pflag.NewFlagSet("", pflag.ContinueOnError), pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.Register(own)
	ofVendors.Register(own, stock)
	set := pflag.NewFlagSet("tandem-gpu", pflag.ContinueOnError)
	for _, flags := range inOrder(program, own, stock) {
		set.AddFlagSet(flags) // where both have a flag the first one's counts
	}
	daemon.Main(set, &flags, help, func(ctx context.Context, log *slog.Logger) error {
		if _, err := flags.Dev(); err != nil {
			return err
		}
		flags.CDIDir = ofVendors.CDIRoot
		return ofVendors.Offer(ctx, program, flags, serve, log)
	})
}

// serve offers GPUs until ctx is done.
func serve(ctx context.Context, flags daemon.Flags, found *gpu.GPUs, log *slog.Logger) error {
	node, err := flags.Node(log)
	if err != nil {
		return err
	}
	offer := func(ctx context.Context, name string) error {
		return flags.Offer(ctx, log, node, gpu.NewPlugin(name, found, node.Member(name, device.GPU), log))
	}
	flags.Begin(found.Names()...)
	return flags.Serve(ctx, log, node, func(ctx context.Context) error {
		return found.Each(ctx, offer)
	}, found.Run)
}

// inOrder returns the flag sets in order of precedence. Only --dev-root is in both, with two meanings.
func inOrder(program string, own, stock *pflag.FlagSet) []*pflag.FlagSet {
	if program == gpus.StockNVIDIA {
		return []*pflag.FlagSet{stock, own}
	}
	return []*pflag.FlagSet{own, stock}
}
