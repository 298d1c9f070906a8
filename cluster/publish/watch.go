// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"log/slog"
	"path/filepath"

	"github.com/fsnotify/fsnotify"

	"github.com/tandem-k8s/tandem/cluster/publish/facts"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// kubeletSocket is the socket that the kubelet recreates at its start (pkg/kubelet/cm/devicemanager).
const kubeletSocket = "kubelet.sock"

// Watch returns a function that sends changes in a kubelet's folder: of the files of facts, and of the
// socket. Without a watch it polls.
func Watch(kubeletDir string, log *slog.Logger) func(context.Context, chan<- Change) {
	checkpoint := kubelet.CheckpointPath(kubeletDir)
	interesting := map[string]Change{
		checkpoint: Written,
		filepath.Join(kubeletDir, facts.CPUStateFile):          Written,
		filepath.Join(kubeletDir, facts.MemoryStateFile):       Written,
		filepath.Join(filepath.Dir(checkpoint), kubeletSocket): Started,
	}
	return func(ctx context.Context, changed chan<- Change) {
		watcher, err := fsnotify.NewWatcher()
		if err != nil {
			log.Warn("look at the kubelet's files from time to time, since they cannot be watched", "error", err)
			return
		}
		defer watcher.Close()
		for _, dir := range []string{filepath.Dir(checkpoint), kubeletDir} {
			if err := watcher.Add(dir); err != nil {
				log.Warn("look at the kubelet's files from time to time, since they cannot be watched", "dir", dir,
					"error", err)
			}
		}
		for {
			select {
			case <-ctx.Done():
				return
			case <-watcher.Errors: // events may be lost; polling covers them
			case event := <-watcher.Events:
				what, ok := interesting[filepath.Clean(event.Name)]
				if !ok || what == Started && !event.Has(fsnotify.Create) || event.Op == fsnotify.Chmod {
					continue
				}
				select {
				case changed <- what:
				case <-ctx.Done():
				}
			}
		}
	}
}
