// SPDX-License-Identifier: Apache-2.0

package hardware

import (
	"log/slog"
	"path/filepath"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/plugins/hinting"
	"github.com/tandem-k8s/tandem/plugins/rdma"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
)

// VFs finds the VFs of a file of pools, as the programs do; node is what decides about hints, and whether
// the GPUs are known.
func (h *Machine) VFs(
	kubeletDir, runDir, poolsFile string, disk system.Disk, node func() (model.Hinting, bool),
	log *slog.Logger,
) (*rdma.VFs, error) {
	held := func() (map[string][]string, error) {
		recorded, err := kubelet.ReadCheckpoint(kubeletDir)
		return recorded.Held(), err
	}
	config, err := pools.ReadConfig(poolsFile)
	if err != nil {
		return nil, err
	}
	finder := pools.Finder{Sys: h, Tree: h.Tree}
	known := rdma.Known{Disk: disk, File: filepath.Join(runDir, "vfs.json"), Held: held}
	if node != nil {
		known.Decide = func(found []pools.Pool) (map[string]pools.Decision, bool) {
			h, gpusKnown := node()
			return hinting.Decide(h, found), gpusKnown
		}
	}
	return rdma.FindVFs(finder, config, known, h.Watch, log)
}
