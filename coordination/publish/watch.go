// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"log/slog"
	"path/filepath"

	"github.com/tandem-k8s/tandem/coordination/fswatch"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// kubeletSocket is the socket that the kubelet recreates at its start (pkg/kubelet/cm/devicemanager).
const kubeletSocket = "kubelet.sock"

// Watch returns a function that sends changes in a kubelet's folder: of the files of facts, and of the
// socket.
func Watch(kubeletDir string, log *slog.Logger) func(context.Context, chan<- Change) {
	checkpoint := kubelet.CheckpointPath(kubeletDir)
	watch := fswatch.Watch{Paths: []string{filepath.Dir(checkpoint), kubeletDir}, Interval: look, Log: log}
	interesting := map[string]Change{
		checkpoint: Written,
		filepath.Join(kubeletDir, kubelet.CPUStateFile):        Written,
		filepath.Join(kubeletDir, kubelet.MemoryStateFile):     Written,
		filepath.Join(filepath.Dir(checkpoint), kubeletSocket): Started,
	}
	return func(ctx context.Context, changed chan<- Change) {
		known := map[string]fswatch.Identity{}
		for path := range interesting {
			known[path], _ = fswatch.Identify(path)
		}
		_ = watch.Run(ctx, func() error {
			for path, change := range interesting {
				now, there := fswatch.Identify(path)
				if now == known[path] {
					continue
				}
				known[path] = now
				if change == Started && !there {
					continue
				}
				select {
				case changed <- change:
				case <-ctx.Done():
				}
			}
			return nil // ctx alone ends the watch
		})
	}
}
