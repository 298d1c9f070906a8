// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/device"
)

// RunFolder is where the daemon meets the other one: what --run-dir says, else where every pod of a device
// plugin can.
func (f Flags) RunFolder() string { return cmp.Or(f.RunDir, coordination.RunDir(f.KubeletDir)) }

// alone is how long a daemon serves without the other one before it says so: a rollout starts both within
// seconds, where the images are there.
const alone = time.Minute

// tellAlone says once, after a time, that the other daemon has not come: a node can be without one, but where
// it has one, the two have no folder in common.
func (f Flags) tellAlone(
	ctx context.Context, log *slog.Logger, node *coordination.Node, after time.Duration,
) error {
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(after):
	}
	if node.Role() != coordination.Serves || bothKinds(node) {
		return nil
	}
	own := f.RunFolder()
	for _, other := range coordination.RunDirs(f.KubeletDir) {
		if other != own && coordination.Answers(other) {
			log.Warn("the two plugins do not meet, each chooses for itself: "+
				"another one serves in another folder; tell both the same --run-dir, or none",
				"run_dir", own, "other", other)
			return nil
		}
	}
	log.Info("no plugin for the other kind of device has come to the run folder; "+
		"where one runs on this node, tell both the same --run-dir, in a volume that both pods mount",
		"run_dir", own)
	return nil
}

// bothKinds reports whether GPUs and VFs are coordinated.
func bothKinds(node *coordination.Node) bool {
	var kinds []string
	for _, r := range node.Resources() {
		if r.GetConnected() && !slices.Contains(kinds, r.GetKind()) {
			kinds = append(kinds, r.GetKind())
		}
	}
	return slices.Contains(kinds, string(device.GPU)) && slices.Contains(kinds, string(device.VF))
}
