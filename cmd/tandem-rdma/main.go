// Command tandem-rdma is a Kubernetes device plugin for RDMA VFs. It offers what the SR-IOV network device
// plugin offers, under the same names, and places a container's VFs on the PCIe switches of the GPUs that
// tandem-gpu gives it.
package main

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/tandem-k8s/tandem/cmd/internal/daemon"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/plugins/deviceplugin"
	"github.com/tandem-k8s/tandem/plugins/rdma"
	"github.com/tandem-k8s/tandem/plugins/rdma/grants"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
)

var help = daemon.Help{
	About: `tandem-rdma offers a node's VFs to the kubelet, as the config.json of the SR-IOV network device plugin says. Together
with tandem-gpu it gives a container VFs and GPUs that hang on the same PCIe switches; alone it chooses among VFs.`,
	Examples: `  tandem-rdma
  tandem-rdma --config-file=/etc/pcidp/config.json --resource-prefix=nvidia.com --log-format=json
  tandem-rdma --sysfs-root=/tmp/node/sys --kubelet-dir=/tmp/node/kubelet --run-dir=/tmp/node/run --devinfo-dir=/tmp/node/devinfo`,
	ExitCodes: `Exit codes, those of the SR-IOV network device plugin:
  0  ended by SIGINT, SIGTERM, SIGQUIT or SIGHUP; or there is no configuration that can be read: the last line on standard
     error says why
  1  cannot work, or the command line is wrong: the last line on standard error says why and what to do
`,
	BadUsage: 1,
	Signals:  []os.Signal{syscall.SIGHUP},
}

func main() {
	set := pflag.NewFlagSet("tandem-rdma", pflag.ContinueOnError)
	var flags daemon.Flags
	flags.Register(set)
	var own options
	own.register(set)
	daemon.Main(set, &flags, help, func(ctx context.Context, log *slog.Logger) error {
		return run(ctx, flags, own, log)
	})
}

func run(ctx context.Context, flags daemon.Flags, own options, log *slog.Logger) error {
	sys, err := flags.Sysfs()
	if err != nil {
		return err
	}
	dev, err := flags.Dev()
	if err != nil {
		return err
	}
	config, err := pools.ReadConfig(own.configFile)
	if err != nil {
		return exit(err)
	}
	node, err := flags.Node(log)
	if err != nil {
		return err
	}
	finder := pools.Finder{
		Sys: sys, Prefix: own.prefix, Tree: node.ReadTree, Reserved: rdma.DefaultRoutes(flags.SysfsRoot),
		DDP: rdma.DDPProfiles(flags.SysfsRoot),
	}
	known := filepath.Join(flags.RunDir, "vfs.json")
	vfs, err := rdma.FindVFs(finder, config, known, held(flags.KubeletDir, log),
		rdma.MachineEvents(flags.SysfsRoot, config), log)
	if err != nil {
		return err
	}
	pairs := filepath.Join(flags.RunDir, "pairs")
	host := grants.Host{Sys: sys, Dev: dev, DevinfoDir: own.devinfoDir, PairsDir: pairs}
	specs := grants.CDI{Dirs: own.cdiDirs, Field: own.cdiDevices}
	if err := specs.CleanUp(); err != nil {
		return err
	}
	if own.useCDI {
		host.CDI = &specs
	}
	var resources []deviceplugin.Resource
	for _, name := range vfs.Names() {
		resources = append(resources, rdma.NewPlugin(name, vfs, host, node.Member(name, device.VF), log))
	}
	flags.Begin(vfs.Found()...)
	err = flags.Serve(ctx, log, node, resources, vfs.Run)
	return errors.Join(err, specs.CleanUp())
}

// held are the devices that the kubelet's containers hold, by resource; nil where that cannot be told.
func held(kubeletDir string, log *slog.Logger) map[string][]string {
	containers, err := kubelet.ReadGranted(kubeletDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("cannot tell which devices containers hold", "error", err)
		return nil
	}
	devices := map[string][]string{}
	for _, container := range containers {
		for resource, ids := range container.Devices {
			devices[resource] = append(devices[resource], ids...)
		}
	}
	return devices
}

// exit gives an error about the configuration the exit code that the stock plugin has for it: success where
// it could not be read at all, so that a node for which there is none yet is no failure.
func exit(err error) error {
	if invalid := (*pools.InvalidError)(nil); errors.As(err, &invalid) {
		return err
	}
	return &daemon.ExitError{Err: err}
}
