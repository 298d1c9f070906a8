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
	"github.com/tandem-k8s/tandem/plugins/gpu/amd"
)

var help = daemon.Help{
	About: `tandem-gpu offers a node's GPUs to the kubelet. Together with tandem-rdma it gives a container GPUs and VFs that
hang on the same PCIe switches; alone it chooses among GPUs.`,
	Examples: `  tandem-gpu
  tandem-gpu --resource_naming_strategy=mixed --pulse=30 --log-format=json
  tandem-gpu --vendor=nvidia --mig-strategy=mixed --config-file=/config/config.yaml
  tandem-gpu --sysfs-root=/tmp/node/sys --kubelet-dir=/tmp/node/kubelet --run-dir=/tmp/node/run`,
	ExitCodes: `Exit codes:
  0  ended by SIGINT, SIGTERM or SIGQUIT
  1  cannot work: the last line on standard error says why and what to do; so it does where one of the strategies of the
     stock plugins is wrong, which for them is no matter of the command line alone
  2  the command line is wrong
`,
}

func main() {
	program := filepath.Base(os.Args[0])
	var flags daemon.Flags
	var ofAMD gpus.AMD
	var ofNVIDIA nvidiaGPUs
	own, stock := pflag.NewFlagSet("", pflag.ContinueOnError), pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.Register(own)
	ofAMD.Register(own)
	ofNVIDIA.Register(own, stock)
	var vendor string
	gpus.RegisterVendor(own, &vendor)
	set := pflag.NewFlagSet("tandem-gpu", pflag.ContinueOnError)
	for _, flags := range inOrder(program, own, stock) {
		set.AddFlagSet(flags) // the flag added first wins
	}
	daemon.Main(set, &flags, help, func(ctx context.Context, log *slog.Logger) error {
		sys, err := flags.Sysfs()
		if err != nil {
			return err
		}
		if _, err := flags.Dev(); err != nil {
			return err
		}
		ofAMD.Recheck = ofNVIDIA.Recheck
		look := func() (string, error) { return gpus.Detect(sys, program, vendor) }
		none := gpus.Absence{Reason: gpus.ErrNoDriver, Every: ofAMD.Recheck}
		switch found, err := gpus.AwaitDriver(ctx, none, flags, log, look); {
		case err != nil:
			return err
		case found == gpus.VendorNVIDIA:
			return ofNVIDIA.run(ctx, flags, log)
		default:
			if err := ofNVIDIA.Unread("--config-file", log); err != nil {
				return err
			}
			return run(ctx, flags, ofAMD, log)
		}
	})
}

func run(ctx context.Context, flags daemon.Flags, own gpus.AMD, log *slog.Logger) error {
	sys, err := flags.Sysfs()
	if err != nil {
		return err
	}
	backend, err := own.Backend(sys, log)
	if err != nil {
		return err
	}
	look := func() (*gpu.GPUs, error) { return gpu.Discover(backend, own.Pulse, log) }
	none := gpus.Absence{Reason: amd.ErrNoDriver, Every: own.Recheck, Vendor: gpus.VendorAMD}
	found, err := gpus.AwaitDriver(ctx, none, flags, log, look)
	if err != nil {
		return err
	}
	return serve(ctx, flags, found, log)
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
	return flags.Serve(ctx, log, node, nil, found.Run, func(ctx context.Context) error {
		return found.Each(ctx, offer)
	})
}

// inOrder returns the flag sets in order of precedence. Only --dev-root is in both, with two meanings.
func inOrder(program string, own, stock *pflag.FlagSet) []*pflag.FlagSet {
	if program == gpus.StockNVIDIA {
		return []*pflag.FlagSet{stock, own}
	}
	return []*pflag.FlagSet{own, stock}
}
