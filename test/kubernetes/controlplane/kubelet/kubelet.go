// SPDX-License-Identifier: Apache-2.0

// Package kubelet is the part of a kubelet for dynamic resources: the DRA manager and the plugin watcher of
// k8s.io/kubernetes, and pod workers that prepare the claims of pods bound to the node, and unprepare them
// before pods are gone. It starts no container.
package kubelet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/dra"
	"k8s.io/kubernetes/pkg/kubelet/config"
	"k8s.io/kubernetes/pkg/kubelet/pluginmanager"
)

// Options configure a kubelet.
type Options struct {
	Node   string
	Dir    string               // takes the place of /var/lib/kubelet; its path is short, for the sockets in it
	Client kubernetes.Interface // with the node's rights
	// Prepared is called for each pod whose claims are prepared, with the IDs of its containers' CDI devices,
	// before the pod runs, and Ending for each pod before its claims are unprepared. Both are called
	// concurrently.
	Prepared func(pod *v1.Pod, devices map[string][]string)
	Ending   func(pod *v1.Pod)
}

// Kubelet is a running kubelet.
type Kubelet struct {
	Options
	manager *dra.Manager
	pods    *pods
	stop    context.CancelFunc
	done    sync.WaitGroup
}

// Registry returns the folder for plugin sockets, below the kubelet's folder.
func Registry(dir string) string { return filepath.Join(dir, "plugins_registry") }

// Start starts the kubelet of a node that the API server knows. It continues with the state of an earlier
// kubelet in the folder.
func Start(ctx context.Context, options Options) (*Kubelet, error) {
	k := &Kubelet{Options: options}
	for _, dir := range []string{Registry(k.Dir), filepath.Join(k.Dir, "plugins")} {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return nil, fmt.Errorf("start kubelet of %s: %w", k.Node, err)
		}
	}
	manager, err := dra.NewManager(klog.FromContext(ctx), k.Client, k.Dir)
	if err != nil {
		return nil, fmt.Errorf("start kubelet of %s: %w", k.Node, err)
	}
	k.manager, k.pods = manager, newPods(k)
	ctx, k.stop = context.WithCancel(ctx)
	ready := config.NewSourcesReady(func(sets.Set[string]) bool { return k.pods.synced.Load() })
	if err := manager.Start(ctx, k.pods.active, k.node, ready); err != nil {
		k.stop()
		return nil, fmt.Errorf("start kubelet of %s: %w", k.Node, err)
	}
	plugins := pluginmanager.NewPluginManager(Registry(k.Dir), nil)
	plugins.AddHandler(registration.DRAPlugin, manager.GetWatcherHandler())
	k.done.Go(func() { plugins.Run(ctx, ready, ctx.Done()) })
	k.done.Go(func() { k.pods.run(ctx) })
	return k, nil
}

// Stop ends the kubelet like the end of its process: pods stay as they are.
func (k *Kubelet) Stop() {
	k.stop()
	k.manager.Stop()
	k.done.Wait()
}

// node returns the node from the API server.
func (k *Kubelet) node(ctx context.Context) (*v1.Node, error) {
	return k.Client.CoreV1().Nodes().Get(ctx, k.Node, metav1.GetOptions{})
}

// Silence discards the log of the kubelet's code, which is global to a process. Call it first.
func Silence() { klog.SetLogger(logr.Discard()) }

// again is the pause before a retry. The real kubelet waits longer.
const again = 100 * time.Millisecond

// Until retries until try succeeds or ctx is done.
func Until(ctx context.Context, try func() error) error {
	ticker := time.NewTicker(again)
	defer ticker.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		}
	}
}
