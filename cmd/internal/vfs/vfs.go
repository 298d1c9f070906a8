// SPDX-License-Identifier: Apache-2.0

// Package vfs is what the daemons that offer VFs have in common: the flags that say which, and how they are
// found.
package vfs

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"github.com/tandem-k8s/tandem/cmd/internal/daemon"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/plugins/rdma"
	"github.com/tandem-k8s/tandem/plugins/rdma/exporter"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/plugins/rdma/sysfs"
	"github.com/tandem-k8s/tandem/topology"
)

// Flags say which VFs are offered.
type Flags struct {
	ConfigFile     string
	Prefix         string // of resources that name none
	DevinfoDir     string // for the files that tell Multus about devices
	ExporterSocket string // of AMD's metrics exporter
}

// The folders that manifests of the stock plugins mount the configuration at (DefaultConfigFilePath in
// pkg/resources/resources_manager.go of the RDMA shared device plugin; entrypoint.sh of the SR-IOV plugin).
const vfFolder, sharedFolder = "etc/pcidp", "k8s-rdma-shared-dev-plugin"

// ConfigFile is where the plugin looks whose manifest started this program: neither of them says so in its
// arguments, and the static ones name no program either.
func ConfigFile(root fs.FS) string {
	_, noVFs := fs.Stat(root, vfFolder)
	if _, err := fs.Stat(root, sharedFolder); err == nil && noVFs != nil {
		return "/" + sharedFolder + "/config.json"
	}
	return "/" + vfFolder + "/config.json"
}

// Register adds the flags to a set, that of the exporter's socket under a name.
func (f *Flags) Register(set *pflag.FlagSet, exporterSocket string) {
	set.StringVar(&f.ConfigFile, "config-file", ConfigFile(os.DirFS("/")),
		"file that says which devices belong to which resource; in a pod of the RDMA shared device plugin "+
			"config.json in /"+sharedFolder)
	set.StringVar(&f.Prefix, "resource-prefix", "intel.com", "prefix of the resources that name none")
	set.StringVar(&f.DevinfoDir, "devinfo-dir", "/var/run/k8s.cni.cncf.io/devinfo/dp",
		"folder for the files that tell Multus about devices")
	set.StringVar(&f.ExporterSocket, exporterSocket, exporter.Socket,
		"where the AMD Device Metrics Exporter tells the health of NICs; "+
			"it is asked of resources with enableExporterHealthCheck")
}

// exporterTimeout is how long the exporter may take. It runs a program for every NIC.
const exporterTimeout = 5 * time.Second

// health asks the metrics exporter.
func (f *Flags) health() (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), exporterTimeout)
	defer cancel()
	return exporter.Health(ctx, f.ExporterSocket)
}

// Find finds the pools of a configuration in a machine whose tree is read with tree.
func (f *Flags) Find(
	flags daemon.Flags, sys fs.FS, config *pools.Config, tree func() (*topology.Tree, error), log *slog.Logger,
) (*rdma.VFs, error) {
	finder := pools.Finder{
		Sys: sys, SRIOV: sysfs.At(flags.SysfsRoot, sys), Prefix: f.Prefix, Tree: tree,
		Reserved: rdma.DefaultRoutes(flags.SysfsRoot), DDP: rdma.DDPProfiles(flags.SysfsRoot), Exporter: f.health,
	}
	return rdma.FindVFs(finder, config, filepath.Join(flags.RunFolder(), memory(config)),
		held(flags.KubeletDir, log), rdma.MachineEvents(flags.SysfsRoot, config), log)
}

// memory names the file of what has to be known over a restart. Two DaemonSets may take the places of both
// stock plugins of a node, with a file each.
func memory(config *pools.Config) string {
	if _, all := config.Shares(); all {
		return "hcas.json"
	}
	return "vfs.json"
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
