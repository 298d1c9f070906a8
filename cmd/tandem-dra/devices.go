// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"time"

	"github.com/tandem-k8s/tandem/cmd/internal/gpus"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/rdma"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/nccl"
)

// trees reads the machine's PCI tree.
type trees struct {
	sys  fs.FS
	file *nccl.File // nil for none
}

// read returns the tree from sysfs.
func (t trees) read() (*topology.Tree, error) { return topology.Read(t.sys) }

// placed returns the tree with the devices at the places of the topology file, if any.
func (t trees) placed() (*topology.Tree, error) {
	tree, err := t.read()
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
	return o.vfs.Find(o.Flags, t.sys, config, t.read, nil, log)
}

// findGPUs finds the node's GPUs, or returns nil if the flags exclude GPUs or the driver only takes claims
// back. The vendor's library stays in use until leave is called.
func (o *options) findGPUs(log *slog.Logger) (found *gpu.GPUs, leave func(), err error) {
	if o.gpus.Vendor == gpus.VendorNone || o.drain {
		return nil, func() {}, nil
	}
	return o.gpus.Find("tandem-dra", o.Flags, log)
}

// unpublished returns a sentence about GPUs of the machine that are not published for a reason; "" for none.
// IsOther reports whether the GPUs are of another vendor than the vendor in --vendor.
func (o *options) unpublished(reason error) (note string, isOther bool) {
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
