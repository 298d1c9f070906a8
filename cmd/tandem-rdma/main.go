// Command tandem-rdma is a Kubernetes device plugin for RDMA VFs. It offers what the SR-IOV network device plugin offers,
// under the same names, and places a container's VFs on the PCIe switches of the GPUs that tandem-gpu gives it.
package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/tandem-k8s/tandem/cmd/internal/daemon"
	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/plugins/deviceplugin"
	"github.com/tandem-k8s/tandem/plugins/rdma"
)

var help = daemon.Help{
	About: `tandem-rdma offers a node's VFs to the kubelet, as the config.json of the SR-IOV network device plugin says. Together
with tandem-gpu it gives a container VFs and GPUs that hang on the same PCIe switches; alone it chooses among VFs.`,
	Examples: `  tandem-rdma
  tandem-rdma --config-file=/etc/pcidp/config.json --resource-prefix=nvidia.com --log-format=json
  tandem-rdma --sysfs-root=/tmp/node/sys --kubelet-dir=/tmp/node/kubelet --run-dir=/tmp/node/run --devinfo-dir=/tmp/node/devinfo`,
}

func main() {
	set := pflag.NewFlagSet("tandem-rdma", pflag.ContinueOnError)
	var flags daemon.Flags
	flags.Register(set)
	configFile := set.String("config-file", "/etc/pcidp/config.json", "file that says which devices belong to which resource")
	prefix := set.String("resource-prefix", "intel.com", "prefix of the resources that name none")
	devinfoDir := set.String("devinfo-dir", "/var/run/k8s.cni.cncf.io/devinfo/dp", "folder for the files that tell Multus about devices")
	daemon.Main(set, &flags, help, func(ctx context.Context, log *slog.Logger) error {
		return run(ctx, flags, *configFile, *prefix, *devinfoDir, log)
	})
}

func run(ctx context.Context, flags daemon.Flags, configFile, prefix, devinfoDir string, log *slog.Logger) error {
	sys, err := flags.Sysfs()
	if err != nil {
		return err
	}
	config, err := rdma.ReadConfig(configFile)
	if err != nil {
		return err
	}
	reserved, err := rdma.DefaultRoutes(flags.SysfsRoot)
	if err != nil {
		return err
	}
	finder := rdma.Finder{Sys: sys, Prefix: prefix, Reserved: reserved, DDP: rdma.DDPProfiles(flags.SysfsRoot)}
	node, err := flags.Node(log)
	if err != nil {
		return err
	}
	vfs, err := rdma.FindVFs(finder, config, filepath.Join(flags.RunDir, "vfs.json"), rdma.MachineEvents(flags.SysfsRoot, config), log)
	if err != nil {
		return err
	}
	host := rdma.Host{Sys: sys, Dev: os.DirFS(flags.DevRoot), DevinfoDir: devinfoDir}
	var resources []deviceplugin.Resource
	for _, name := range vfs.Names() {
		resources = append(resources, rdma.NewPlugin(name, vfs, host, node.Member(name, coordination.VF), log))
	}
	return flags.Serve(ctx, log, node, resources, vfs.Run)
}
