// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tandem-k8s/tandem/cmd/internal/gpus"
	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/version"
	"github.com/tandem-k8s/tandem/plugins/dra"
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/rdma"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/nccl"
)

// serveOnce serves with the current configuration. Without a GPU driver it serves VFs only, and calls restart
// once a driver is available; with GPUs of another vendor than the vendor in --vendor it is not ready.
func (o *options) serveOnce(ctx context.Context, restart func(), log *slog.Logger) error {
	config, err := o.driverConfig(log)
	if err != nil {
		return err
	}
	found, leave, err := o.findGPUs(log)
	otherVendor := false
	g, ctx := errgroup.WithContext(ctx)
	switch {
	case err == nil:
		defer leave()
		config.GPUs = found
	case gpu.IsNoDriver(err):
		config.NoGPUs, otherVendor = o.describeUnpublished(err)
		log.Warn("no GPU driver; publishing no GPU until a driver is present",
			"reason", cmp.Or(config.NoGPUs, err.Error()), "look_every", o.gpus.Recheck)
		g.Go(func() error {
			o.awaitGPUs(ctx, restart, log)
			return nil
		})
	default:
		return err
	}
	o.Monitor().Offered(pool.Driver) // not ready before the registration with the kubelet
	o.Begin()
	if otherVendor {
		o.Monitor().Lack(errors.New(config.NoGPUs))
	}
	driver, err := dra.New(config)
	if err != nil {
		return err
	}
	defer o.Monitor().Node(driver)()
	defer o.Monitor().Resource(pool.Driver, nil)()
	g.Go(func() error { return driver.Run(ctx) })
	return g.Wait()
}

// driverConfig returns the configuration of the driver without its GPUs.
func (o *options) driverConfig(log *slog.Logger) (dra.Config, error) {
	config := dra.Config{
		NodeName: o.NodeName, PodUID: o.podUID, KubeletDir: o.KubeletDir, RunDir: o.RunFolder(),
		CDIDir: o.gpus.CDIRoot, Policy: o.Policy, VFsPerPF: o.vfsPerPF, PairsAsVFs: o.pairsAsVFs, Drain: o.drain,
		Log: log,
	}
	if err := dra.Check(config); err != nil {
		return config, err
	}
	if err := coordination.PrepareRunDir(config.RunDir); err != nil {
		return config, err
	}
	sys, err := o.Sysfs()
	if err != nil {
		return config, err
	}
	dev, err := o.Dev()
	if err != nil {
		return config, err
	}
	file, err := o.Topology()
	if err != nil {
		return config, err
	}
	config.Client, err = newClient(o.kubeconfig)
	if err != nil {
		return config, err
	}
	t := trees{sys, file}
	if !o.drain {
		config.VFs, err = o.findVFs(t, log)
		if err != nil {
			return config, err
		}
	}
	config.Tree = t.readPlaced
	config.Host = rdma.Host{
		Sys: sys, SRIOV: pools.SRIOVAt(o.SysfsRoot, sys), Dev: dev, DevinfoDir: o.vfs.DevinfoDir,
	}
	config.Observer, config.Unsound = o.Monitor(), o.Unsound()
	return config, nil
}

// Limits of requests to the API server per second: a starting pod costs about three, and a node starts its
// pods at once.
const (
	questions = 50
	burst     = 100
)

// newClient returns a client of the API server.
func newClient(kubeconfig string) (kubernetes.Interface, error) {
	config, err := intent.ServerConfig(nil)
	if kubeconfig != "" {
		config, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err != nil {
			err = fmt.Errorf("use --kubeconfig: %w", err)
		}
	}
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = questions, burst
	config.UserAgent = "tandem-dra/" + version.Text()
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of the API server: %w", err)
	}
	return client, nil
}

// trees reads the machine's PCI tree.
type trees struct {
	sys  fs.FS
	file *nccl.File // nil for none
}

// readTree returns the tree from sysfs.
func (t trees) readTree() (*topology.Tree, error) { return topology.Read(t.sys) }

// readPlaced returns the tree with the devices at the places of the topology file, if any.
func (t trees) readPlaced() (*topology.Tree, error) {
	tree, err := t.readTree()
	if err != nil || t.file == nil {
		return tree, err
	}
	return t.file.Apply(tree)
}

// findVFs finds the node's VFs: those of the configuration, or all with RDMA if no configuration file is
// named or present.
func (o *options) findVFs(t trees, log *slog.Logger) (*rdma.VFs, error) {
	config, err := pools.ReadConfig(o.vfs.ConfigFile)
	if errors.Is(err, fs.ErrNotExist) && !o.given("config-file") {
		log.Info("no configuration file; publishing all VFs with RDMA", "file", o.vfs.ConfigFile)
		config, err = pools.Default(), nil
	}
	if err != nil {
		return nil, err
	}
	return o.vfs.Find(o.Flags, t.sys, config, t.readTree, nil, log)
}

// findGPUs finds the node's GPUs, or returns nil if the flags exclude GPUs or the driver only takes claims
// back. The vendor's library stays in use until leave is called.
func (o *options) findGPUs(log *slog.Logger) (found *gpu.GPUs, leave func(), err error) {
	if o.gpus.Vendor == gpus.VendorNone || o.drain {
		return nil, func() {}, nil
	}
	return o.gpus.Find("tandem-dra", o.Flags, log)
}

// describeUnpublished returns a sentence about GPUs of the machine that are not published for a reason; ""
// for none. IsOther reports whether the GPUs are of another vendor than the vendor in --vendor.
func (o *options) describeUnpublished(reason error) (note string, isOther bool) {
	sys, err := o.Sysfs()
	if err != nil {
		return "", false
	}
	tree, err := topology.Read(sys)
	if err != nil {
		return "", false
	}
	note = gpu.DescribeUnpublished(tree, o.gpus.Vendor, reason)
	return note, gpu.OtherVendor(tree, o.gpus.Vendor) != nil
}

// awaitGPUs looks for GPUs and calls found as soon as they are present, until ctx is done. It also calls
// found on a failure of another kind, so that the restart reports the reason.
func (o *options) awaitGPUs(ctx context.Context, found func(), log *slog.Logger) {
	tick := time.NewTicker(o.gpus.Recheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		_, leave, err := o.findGPUs(slog.New(slog.DiscardHandler))
		if gpu.IsNoDriver(err) {
			continue
		}
		if err == nil {
			leave()
		} else {
			log.Warn("GPU discovery failed", "error", err)
		}
		found()
		return
	}
}
