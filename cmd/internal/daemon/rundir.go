// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/device"
)

// alone is the time without the other daemon after which a daemon logs its absence. A rollout starts both
// within seconds if the images are present.
const alone = time.Minute

// tellAlone logs once, after a delay, that the other daemon is absent. A node may run only one daemon; if the
// node runs both, their run folders differ.
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
			log.Warn("the two plugins use different run folders and choose devices independently; "+
				"set the same --run-dir for both, or omit the flag",
				"run_dir", own, "other", other)
			return nil
		}
	}
	log.Info("no plugin for the other kind of device uses the run folder; if this node runs one, "+
		"set the same --run-dir for both plugins, in a volume that both pods mount",
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
