// SPDX-License-Identifier: Apache-2.0

package hardware

import (
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"

	"github.com/tandem-k8s/tandem/coordination/file"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/plugins/rdma"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
)

// VFs finds the VFs of a file of pools, as the programs do.
func (h *Machine) VFs(
	kubeletDir, runDir, poolsFile string, disk file.Disk, log *slog.Logger,
) (*rdma.VFs, error) {
	held := map[string][]string{}
	granted, err := kubelet.ReadGranted(kubeletDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, container := range granted {
		for resource, ids := range container.Devices {
			held[resource] = append(held[resource], ids...)
		}
	}
	config, err := pools.ReadConfig(poolsFile)
	if err != nil {
		return nil, err
	}
	finder := pools.Finder{Sys: h, Tree: h.Tree}
	known := rdma.Known{Disk: disk, File: filepath.Join(runDir, "vfs.json"), Held: held}
	return rdma.FindVFs(finder, config, known, h.Watch, log)
}
