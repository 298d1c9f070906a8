// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/publish"
	"github.com/tandem-k8s/tandem/plugins/deviceplugin"
)

// Node returns the daemon's part in the coordination of its node.
func (f Flags) Node(log *slog.Logger) (*coordination.Node, error) {
	endpoint := f.kubeletEndpoint()
	file, err := f.Topology()
	if err != nil {
		return nil, err
	}
	if f.RunDir == "" {
		if err := deviceplugin.CheckFolder(f.KubeletDir); err != nil {
			return nil, err
		}
	}
	publisher, err := f.newPublisher(log)
	if err != nil {
		return nil, err
	}
	config := coordination.Config{
		RunDir:     f.RunFolder(),
		Topology:   file,
		SysRoot:    f.SysfsRoot,
		KubeletDir: f.KubeletDir,
		Kubelet:    f.configFiles(),
		Intent:     intent.Config{Choice: f.Intent, Kubelet: endpoint, Policy: f.Policy},
		CDIDir:     f.CDIDir,
		Publisher:  publisher,
		Observer:   f.monitor.Observe,
		Log:        log,
	}
	if f.sender != nil {
		config.Intent.Rejected, config.Unsound = f.sender.Rejected, f.sender.Unsound
		config.Intent.Enforced = func(now intent.Enforcement) {
			if now.Enforced() || now.TooLarge || f.Policy.Alignment == intent.Required {
				f.sender.Enforced(now)
			}
		}
	}
	node, err := coordination.New(config)
	if err != nil {
		return nil, err
	}
	f.monitor.Remark(node.Remark)
	return node, nil
}

// newPublisher returns the publisher of the node, or nil if the flags name no target.
func (f Flags) newPublisher(log *slog.Logger) (coordination.Publisher, error) {
	if len(f.targets) == 0 {
		return nil, nil
	}
	sys, err := f.Sysfs()
	if err != nil {
		return nil, err
	}
	config := publish.Config{
		Targets: f.targets, Node: f.NodeName, NamespaceFile: account + "namespace",
		Sys: sys, KubeletDir: f.KubeletDir, Files: f.configFiles(),
		Pods: func(ctx context.Context, each func(*corev1.Pod)) error {
			return kubelet.ListPods(ctx, f.KubeletDir, each)
		},
		Published: f.monitor.Published, Log: log,
	}
	if f.Kubelet.Address != "" {
		config.Configz = kubelet.NewHTTPS(f.kubeletEndpoint()).Configz
	}
	publisher, err := publish.New(config)
	if err != nil {
		return nil, fmt.Errorf("--publish: %w", err)
	}
	return publisher, nil
}

// Unsound returns the receiver of unsound devices, nil without events.
func (f Flags) Unsound() func([]coordination.Unsound) {
	if f.sender == nil {
		return nil
	}
	return f.sender.Unsound
}

// Hints returns the receiver of changed decisions about NUMA hints, nil without events.
func (f Flags) Hints() func(resource, decision string) {
	if f.sender == nil {
		return nil
	}
	return f.sender.Hints
}

// Monitor returns the daemon's monitor.
func (f Flags) Monitor() *monitor { return f.monitor }

// Begin reports the resources with devices, as far as known before the daemon offers them. The daemon is not
// ready until Begin.
func (f Flags) Begin(resources ...string) {
	f.monitor.Begin(slices.DeleteFunc(slices.Clone(resources), func(name string) bool {
		return deviceplugin.CheckName(name) != nil
	})...)
}

// Serve offers resources to the kubelet until ctx is done or offer fails, and takes part in coordination
// until offer has answered the kubelet's calls. The functions in beside run at the same time. On a node in
// DRA mode Serve fails at once.
func (f Flags) Serve(
	ctx context.Context, log *slog.Logger, node *coordination.Node, offer func(context.Context) error,
	beside ...func(context.Context) error,
) error {
	leave, err := coordination.Enter(ctx, coordination.DevicePlugin, f.RunFolder(), f.KubeletDir)
	if err != nil {
		return err
	}
	defer leave()
	defer f.monitor.Node(node)()
	g, ctx := errgroup.WithContext(ctx)
	coordinating, end := context.WithCancel(context.WithoutCancel(ctx))
	g.Go(func() error {
		defer end() // after the last call of the kubelet has been answered
		if err := offer(ctx); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	})
	g.Go(func() error { return node.Run(coordinating) })
	g.Go(func() error { return f.tellAlone(ctx, log, node, alone) })
	for _, work := range beside {
		g.Go(func() error { return work(ctx) })
	}
	return g.Wait()
}

// OfferAll offers resources to the kubelet until ctx is done or one fails. See Offer.
func (f Flags) OfferAll(
	ctx context.Context, log *slog.Logger, node *coordination.Node, resources []deviceplugin.Resource,
) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, r := range resources {
		g.Go(func() error { return f.Offer(ctx, log, node, r) })
	}
	return g.Wait()
}

// Offer offers one resource to the kubelet until ctx is done. Offer skips a resource whose name the kubelet
// would reject, so that the other resources stay available.
func (f Flags) Offer(
	ctx context.Context, log *slog.Logger, node *coordination.Node, resource deviceplugin.Resource,
) error {
	if err := deviceplugin.CheckName(resource.Name()); err != nil {
		log.Error("resource not offered", "error", err)
		return nil
	}
	pods, err := kubelet.NewPodResources(f.KubeletDir)
	if err != nil {
		return err
	}
	defer pods.Close()
	options := deviceplugin.Options{
		KubeletDir:   f.KubeletDir,
		Registration: f.Registration,
		Preferred:    f.PreferredAllocation,
		Allocatable: func(ctx context.Context, resource string) ([]string, error) {
			all, err := pods.Allocatable(ctx)
			return all[resource], err
		},
		Observer: f.monitor,
		Log:      log,
	}
	server, err := deviceplugin.New(options, resource)
	if err != nil {
		return err
	}
	defer f.monitor.Resource(resource.Name(), server.Alive)()
	return server.Run(ctx)
}
