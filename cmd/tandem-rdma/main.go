// SPDX-License-Identifier: Apache-2.0

// Command tandem-rdma is a Kubernetes device plugin for RDMA VFs and shared HCAs. It offers the same
// resources as the SR-IOV network device plugin and the RDMA shared device plugin, under the same names, and
// places a container's VFs and HCAs on the PCIe switches of the GPUs from tandem-gpu.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/tandem-k8s/tandem/cmd/internal/daemon"
	"github.com/tandem-k8s/tandem/cmd/internal/vfs"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/plugins/deviceplugin"
	"github.com/tandem-k8s/tandem/plugins/rdma"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
)

var help = daemon.Help{
	About: `tandem-rdma is a device plugin for the VFs and shared HCAs of a node. Its configuration file is the config.json of the SR-IOV
network device plugin (resourceList), of the RDMA shared device plugin k8s-rdma-shared-dev-plugin (configList), or a file with
both lists. Together with tandem-gpu it assigns VFs and GPUs on the same PCIe switches to a container; alone it selects only VFs.`,
	Examples: `  tandem-rdma
  tandem-rdma --config-file=/etc/pcidp/config.json --resource-prefix=nvidia.com --log-format=json
  tandem-rdma --sysfs-root=/tmp/node/sys --kubelet-dir=/tmp/node/kubelet --run-dir=/tmp/node/run --devinfo-dir=/tmp/node/devinfo`,
	ExitCodes: `Exit codes:
  0  ended by SIGINT, SIGTERM, SIGQUIT or SIGHUP
  1  failure, or invalid configuration or command line: the last line on standard error names the reason and a remedy
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
	config, err := pools.ReadConfig(own.ConfigFile)
	if err != nil {
		return err
	}
	if some, _ := config.Shares(); some {
		if err := rdma.CheckSharing(flags.SysfsRoot); err != nil {
			return err
		}
	}
	if len(own.cdiDirs) == 0 {
		return errors.New("--cdi-dirs is empty; name at least one folder, or omit the flag")
	}
	flags.CDIDir = own.cdiDirs[len(own.cdiDirs)-1]
	node, err := flags.Node(log)
	if err != nil {
		return err
	}
	found, err := own.Find(flags, sys, config, node.ReadTree, node.Hinting, log)
	if err != nil {
		return err
	}
	if up := rdma.LinkUp(flags.SysfsRoot); up != nil {
		found.BringUp(up)
	}
	pairs := filepath.Join(flags.RunFolder(), "pairs")
	host := rdma.Host{
		Sys: sys, SRIOV: pools.SRIOVAt(flags.SysfsRoot, sys), Dev: dev, DevinfoDir: own.DevinfoDir, PairsDir: pairs,
	}
	specs := rdma.CDI{Dirs: own.cdiDirs, Field: own.cdiDevices}
	var kept []pools.Pool
	if own.useCDI {
		host.CDI = &specs
		kept, _ = found.All()
	}
	// The specs of current pools, like the files for Multus, stay when the daemon ends: another instance may
	// have started already, and containers of running pods restart with these specs while no daemon runs.
	if err := specs.CleanUp(config, kept...); err != nil {
		return err
	}
	var resources []deviceplugin.Resource
	for _, name := range found.Names() {
		resources = append(resources, rdma.NewPlugin(name, found, host, node.Member(name, device.VF), log))
	}
	flags.Begin(found.Found()...)
	return flags.Serve(ctx, log, node, func(ctx context.Context) error {
		return flags.OfferAll(ctx, log, node, resources)
	}, found.Run)
}

// options are the daemon's own flags.
type options struct {
	vfs.Flags
	useCDI     bool
	cdiDevices bool
	cdiDirs    []string
	logDir     string
}

func (o *options) register(set *pflag.FlagSet) {
	o.Register(set, "amd-exporter-socket")
	set.BoolVar(&o.useCDI, "use-cdi", false,
		"add device nodes to containers through CDI annotations")
	set.BoolVar(&o.cdiDevices, "cdi-devices", false,
		"with --use-cdi, use the CDIDevices field instead of annotations; requires kubelet 1.31 or later")
	set.StringSliceVar(&o.cdiDirs, "cdi-dirs", rdma.CDIDirs,
		"folders of CDI specs; specs are written to the last folder")
	o.registerStock(set)
}

// registerStock adds the flags of the stock plugin's entrypoint.sh, except those of glog.
func (o *options) registerStock(set *pflag.FlagSet) {
	set.StringVar(&o.logDir, "log-dir", "",
		"ignored; accepted for compatibility with the stock plugin, since logs go to standard error")
	// Entrypoint and plugin share --log-level; this flag also accepts words.
	level := set.Lookup("log-level")
	level.Value = verbosity{level.Value}
	for _, name := range []string{"resource-prefix", "config-file"} {
		flag := set.Lookup(name)
		flag.Value = orPreset{flag.Value, flag.DefValue}
	}
}

// orPreset treats an empty value as unset: the entrypoint passes only flags that are not empty.
type orPreset struct {
	pflag.Value
	preset string
}

// Set takes a value, or the preset.
func (o orPreset) Set(text string) error { return o.Value.Set(cmp.Or(text, o.preset)) }

// verbosity accepts numbers as well as words: the manifests of the stock plugin, and its entrypoint by
// default, pass --log-level=10. Every number means info.
type verbosity struct{ pflag.Value }

// Set reads a number or a word.
func (v verbosity) Set(text string) error {
	if _, err := strconv.ParseUint(text, 10, 31); err == nil {
		text = slog.LevelInfo.String()
	}
	if err := v.Value.Set(text); err != nil {
		return fmt.Errorf("%w, or a number", err)
	}
	return nil
}
