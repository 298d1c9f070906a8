// SPDX-License-Identifier: Apache-2.0

// Package vfs has the common parts of the daemons that offer VFs: the flags that select VFs, and their
// discovery.
package vfs

import (
	"context"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"github.com/tandem-k8s/tandem/cmd/internal/daemon"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/plugins/container"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/health"
	"github.com/tandem-k8s/tandem/plugins/hinting"
	"github.com/tandem-k8s/tandem/plugins/rdma"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/topology"
)

// Flags select the offered VFs.
type Flags struct {
	ConfigFile     string
	Prefix         string // of resources without a prefix
	DevinfoDir     string // for the device information files of Multus
	ExporterSocket string // of AMD's metrics exporter
}

// The folders in which manifests of the stock plugins mount the configuration (DefaultConfigFilePath in
// pkg/resources/resources_manager.go of the RDMA shared device plugin; entrypoint.sh of the SR-IOV plugin).
const vfFolder, sharedFolder = "etc/pcidp", "k8s-rdma-shared-dev-plugin"

// configFile returns the configuration path of the stock plugin whose manifest started this program. Neither
// manifest passes the path as an argument, and the static manifests name no program.
func configFile(root fs.FS) string {
	_, noVFs := fs.Stat(root, vfFolder)
	if _, err := fs.Stat(root, sharedFolder); err == nil && noVFs != nil {
		return "/" + sharedFolder + "/config.json"
	}
	return "/" + vfFolder + "/config.json"
}

// Register adds the flags to a set; exporterSocket is the name of the flag of the exporter's socket.
func (f *Flags) Register(set *pflag.FlagSet, exporterSocket string) {
	set.StringVar(&f.ConfigFile, "config-file", configFile(os.DirFS("/")),
		"configuration file with the devices of each resource; in a pod of the RDMA shared device plugin, the "+
			"default is config.json in /"+sharedFolder)
	set.StringVar(&f.Prefix, "resource-prefix", "intel.com",
		"resource prefix for resources without resourcePrefix")
	set.StringVar(&f.DevinfoDir, "devinfo-dir", "/var/run/k8s.cni.cncf.io/devinfo/dp",
		"folder of the device-info files for Multus")
	set.StringVar(&f.ExporterSocket, exporterSocket, health.NICExporter,
		"socket of the AMD Device Metrics Exporter, queried for the health of NICs of resources with "+
			"enableExporterHealthCheck")
}

// exporterTimeout limits a call of the exporter, which runs a program for every NIC.
const exporterTimeout = 5 * time.Second

// readHealth asks the metrics exporter.
func (f *Flags) readHealth() (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), exporterTimeout)
	defer cancel()
	return health.NICHealth(ctx, f.ExporterSocket)
}

// Find returns the VFs of the configuration's pools on a machine; tree reads the PCI tree. Node returns what
// decides about NUMA hints besides the pools and the cards of GPUs; nil without hints, in DRA mode.
func (f *Flags) Find(
	flags daemon.Flags, sys fs.FS, config *pools.Config, tree func() (*topology.Tree, error),
	node func() (model.Hinting, *topology.Tree), log *slog.Logger,
) (*rdma.VFs, error) {
	finder := pools.Finder{
		Sys: sys, SRIOV: pools.SRIOVAt(flags.SysfsRoot, sys), Prefix: f.Prefix, Tree: tree,
		Dev:    container.HostNodes(flags.DevRoot),
		Routes: rdma.DefaultRoutes(flags.SysfsRoot), DDP: rdma.DDPProfiles(flags.SysfsRoot), Exporter: f.readHealth,
	}
	held := func() (map[string][]string, error) {
		recorded, err := kubelet.ReadCheckpoint(flags.KubeletDir)
		return recorded.Held(), err
	}
	known := rdma.Known{File: filepath.Join(flags.RunFolder(), memoryFile(config)), Held: held}
	if node != nil {
		known.Decide, known.Changed = newDecision(node), flags.Hints()
	}
	found, err := rdma.FindVFs(finder, config, known, rdma.MachineEvents(flags.SysfsRoot, config), log)
	if err == nil {
		found.Heed(health.New(flags.DeviceHealth, sys))
	}
	return found, err
}

// gpusLate is the time in which a plugin for the node's GPUs announces them. Without an announcement until
// then, another plugin offers the cards.
const gpusLate = time.Minute

// newDecision returns a function that decides about hints and reports whether the GPUs are known. The cards
// of the PCI tree stand for GPUs that nobody announces.
func newDecision(
	node func() (model.Hinting, *topology.Tree),
) func([]pools.Pool) (map[string]pools.Decision, bool) {
	began := time.Now()
	return func(found []pools.Pool) (map[string]pools.Decision, bool) {
		h, tree := node()
		known := len(h.GPUs) > 0
		if !known {
			h.GPUs = findCards(tree)
			known = len(h.GPUs) == 0 || time.Since(began) >= gpusLate
		}
		return hinting.Decide(h, found), known
	}
}

// findCards returns the node's cards as a resource; none without a card.
func findCards(tree *topology.Tree) []model.Resource {
	all := model.Resource{Name: "GPUs", Kind: model.GPU}
	for d := range tree.Devices() {
		if gpu.Vendor(d) != "" {
			all.Devices = append(all.Devices, model.Device{NUMA: d.NUMA, Healthy: true})
		}
	}
	if len(all.Devices) == 0 {
		return nil
	}
	return []model.Resource{all}
}

// memoryFile returns the name of the file that survives a restart. Two DaemonSets may replace both stock
// plugins of a node, so each has a file of its own.
func memoryFile(config *pools.Config) string {
	if _, all := config.Shares(); all {
		return "hcas.json"
	}
	return "vfs.json"
}
