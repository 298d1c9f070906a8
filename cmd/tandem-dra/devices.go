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

// read is the tree as sysfs has it.
func (t trees) read() (*topology.Tree, error) { return topology.Read(t.sys) }

// placed is the tree with the devices where they are in truth.
func (t trees) placed() (*topology.Tree, error) {
	tree, err := t.read()
	if err != nil || t.file == nil {
		return tree, err
	}
	return t.file.Apply(tree)
}

// findVFs finds the node's VFs. Without a configuration, where none was named, they are all with RDMA.
func (o *options) findVFs(t trees, log *slog.Logger) (*rdma.VFs, error) {
	config, err := pools.ReadConfig(o.vfs.ConfigFile)
	if errors.Is(err, fs.ErrNotExist) && !o.given("config-file") {
		log.Info("all VFs with RDMA are published: there is no configuration", "file", o.vfs.ConfigFile)
		config, err = pools.Default(), nil
	}
	if err != nil {
		return nil, err
	}
	return o.vfs.Find(o.Flags, t.sys, config, t.read, log)
}

// findGPUs finds the node's GPUs; nil where they are not wanted, as to take claims back. Their vendor's
// library is in use until leave is called.
func (o *options) findGPUs(sys fs.FS, log *slog.Logger) (found *gpu.GPUs, leave func(), err error) {
	if o.gpus.Vendor == gpus.VendorNone || o.drain {
		return nil, func() {}, nil
	}
	return o.gpus.Find("tandem-dra", sys, o.Flags, log)
}

// awaitGPUs looks for GPUs until they can be found or ctx is done, and says so then. A failure of another
// kind is for who starts over: it says why.
func (o *options) awaitGPUs(ctx context.Context, sys fs.FS, found func(), log *slog.Logger) {
	tick := time.NewTicker(o.gpus.Recheck())
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		_, leave, err := o.findGPUs(sys, slog.New(slog.DiscardHandler))
		if gpus.IsAbsent(err) {
			continue
		}
		if err == nil {
			leave()
		} else {
			log.Warn("GPUs", "error", err)
		}
		found()
		return
	}
}
