package main

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/tandem-k8s/tandem/plugins/rdma/exporter"
	"github.com/tandem-k8s/tandem/plugins/rdma/grants"
)

// options are the daemon's own flags.
type options struct {
	configFile string
	prefix     string
	devinfoDir string
	useCDI     bool
	cdiDevices bool
	cdiDirs    []string
	logDir     string

	exporterSocket string
}

// The folders that manifests of the stock plugins mount the configuration at (DefaultConfigFilePath in
// pkg/resources/resources_manager.go of the RDMA shared device plugin; entrypoint.sh of the SR-IOV plugin).
const vfFolder, sharedFolder = "etc/pcidp", "k8s-rdma-shared-dev-plugin"

// configFile is where the plugin looks whose manifest started this program: neither of them says so in its
// arguments, and the static ones name no program either.
func configFile(root fs.FS) string {
	_, noVFs := fs.Stat(root, vfFolder)
	if _, err := fs.Stat(root, sharedFolder); err == nil && noVFs != nil {
		return "/" + sharedFolder + "/config.json"
	}
	return "/" + vfFolder + "/config.json"
}

func (o *options) register(set *pflag.FlagSet) {
	set.StringVar(&o.configFile, "config-file", configFile(os.DirFS("/")),
		"file that says which devices belong to which resource; in a pod of the RDMA shared device plugin "+
			"config.json in /"+sharedFolder)
	set.StringVar(&o.prefix, "resource-prefix", "intel.com", "prefix of the resources that name none")
	set.StringVar(&o.devinfoDir, "devinfo-dir", "/var/run/k8s.cni.cncf.io/devinfo/dp",
		"folder for the files that tell Multus about devices")
	set.BoolVar(&o.useCDI, "use-cdi", false,
		"give device nodes to containers through CDI, named in an annotation")
	set.BoolVar(&o.cdiDevices, "cdi-devices", false,
		"with --use-cdi: name them in the field CDIDevices instead, which every kubelet from 1.31 on hands on")
	set.StringSliceVar(&o.cdiDirs, "cdi-dirs", grants.CDIDirs,
		"folders of CDI specs; they are written to the last")
	set.StringVar(&o.exporterSocket, "amd-exporter-socket", exporter.Socket,
		"where the AMD Device Metrics Exporter tells the health of NICs; "+
			"it is asked of resources with enableExporterHealthCheck")
	o.registerStock(set)
}

// exporterTimeout is how long the exporter may take. It runs a program for every NIC.
const exporterTimeout = 5 * time.Second

// health asks the metrics exporter.
func (o *options) health() (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), exporterTimeout)
	defer cancel()
	return exporter.Health(ctx, o.exporterSocket)
}

// registerStock adds what the entrypoint.sh of the stock plugin takes beside the flags of glog.
func (o *options) registerStock(set *pflag.FlagSet) {
	set.StringVar(&o.logDir, "log-dir", "",
		"accepted for manifests of the stock plugin: logs go to standard error")
	// Entrypoint and plugin share --log-level; here it is a word too.
	level := set.Lookup("log-level")
	level.Value = verbosity{level.Value}
	for _, name := range []string{"resource-prefix", "config-file"} {
		flag := set.Lookup(name)
		flag.Value = orPreset{flag.Value, flag.DefValue}
	}
}

// orPreset takes an empty value for none: the entrypoint hands those flags on that are not empty.
type orPreset struct {
	pflag.Value
	preset string
}

// Set takes a value, or the preset.
func (o orPreset) Set(text string) error { return o.Value.Set(cmp.Or(text, o.preset)) }

// verbosity reads numbers as well as words: --log-level=10 is what the manifests of the stock plugin pass,
// and the default of its entrypoint. Without any word that is the usual amount of detail, so every number is
// info.
type verbosity struct{ pflag.Value }

// Set reads a number or a word.
func (v verbosity) Set(text string) error {
	if _, err := strconv.ParseUint(text, 10, 31); err == nil {
		text = slog.LevelInfo.String()
	}
	if err := v.Value.Set(text); err != nil {
		return fmt.Errorf("want debug, info, warn or error, or a number: %w", err)
	}
	return nil
}
