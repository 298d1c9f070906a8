// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"path/filepath"

	"k8s.io/klog/v2"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/config"
	"k8s.io/kubernetes/pkg/kubelet/pluginmanager"
)

// Registry returns the plugin watcher's folder, below the node's folder.
func Registry(dir string) string { return filepath.Join(dir, "plugins_registry") }

// watcher is the kubelet's plugin manager at work.
type watcher struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// startWatcher starts the plugin watcher like initializeRuntimeDependentModules in pkg/kubelet/kubelet.go,
// for device plugins only.
func startWatcher(dir string, devices *devicemanager.ManagerImpl, sources config.SourcesReady) *watcher {
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), klog.Background()))
	w := &watcher{cancel: cancel, done: make(chan struct{})}
	plugins := pluginmanager.NewPluginManager(Registry(dir), nil)
	plugins.AddHandler(registration.DevicePlugin, devices.GetWatcherHandler())
	go func() {
		defer close(w.done)
		plugins.Run(ctx, sources, ctx.Done())
	}()
	return w
}

func (w *watcher) stop() {
	if w != nil {
		w.cancel()
		<-w.done
	}
}
