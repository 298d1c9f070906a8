// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/cmd/internal/monitor"
	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/publish"
	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/plugins/deviceplugin"
)

// Node returns the daemon's part in the coordination of its node.
func (f Flags) Node(log *slog.Logger) (*coordination.Node, error) {
	endpoint := f.endpoint()
	file, err := f.Topology()
	if err != nil {
		return nil, err
	}
	if f.RunDir == "" {
		if err := deviceplugin.CheckFolder(f.KubeletDir); err != nil {
			return nil, err
		}
	}
	publisher, err := f.publisher(log)
	if err != nil {
		return nil, err
	}
	withheld := newWithheld(f.KubeletDir, f.CDIDir, log)
	config := coordination.Config{
		RunDir:     f.RunFolder(),
		Topology:   file,
		SysRoot:    f.SysfsRoot,
		KubeletDir: f.KubeletDir,
		Kubelet:    f.files(),
		Intent: coordination.Intent{
			Sources: f.Intent, Kubelet: endpoint, Policy: f.Policy,
		},
		Withheld:  withheld,
		Publisher: publisher,
		Log:       log,
	}
	if f.monitor != nil {
		config.Observer = f.monitor
		f.monitor.Remark(withheld.Remark)
	}
	if f.sender != nil {
		config.Rejected, config.Unsound = f.sender.Rejected, f.sender.Unsound
		config.Enforced = func(now intent.Enforcement) {
			if !now.Enforced() && (now.TooLarge || f.Policy.Alignment == intent.Required) {
				f.sender.Unenforced(now)
			}
		}
	}
	return coordination.New(config)
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
func (f Flags) Monitor() *monitor.Monitor { return f.monitor }

// Wait reports the reason for which the daemon is waiting. The daemon is not ready until Begin.
func (f Flags) Wait(reason error) { f.monitor.Wait(reason) }

// Begin reports the resources with devices, as far as known before the daemon offers them. The daemon is not
// ready until Begin.
func (f Flags) Begin(resources ...string) {
	f.monitor.Begin(slices.DeleteFunc(slices.Clone(resources), func(name string) bool {
		return deviceplugin.CheckName(name) != nil
	})...)
}

// Serve offers every resource to the kubelet and takes part in coordination until ctx is done or a resource
// fails. The functions in beside run at the same time. On a node in DRA mode Serve fails at once.
func (f Flags) Serve(
	ctx context.Context, log *slog.Logger, node *coordination.Node, resources []deviceplugin.Resource,
	beside ...func(context.Context) error,
) error {
	leave, err := coordination.Enter(ctx, coordination.DevicePlugin, f.RunFolder(), f.KubeletDir)
	if err != nil {
		return err
	}
	defer leave()
	defer f.monitor.Node(node)()
	run := append([]func(context.Context) error{
		node.Run,
		func(ctx context.Context) error { return f.tellAlone(ctx, log, node, alone) },
	}, beside...)
	for _, r := range resources {
		run = append(run, func(ctx context.Context) error { return f.Offer(ctx, log, node, r) })
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, work := range run {
		g.Go(func() error { return work(ctx) })
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
		Log: log,
	}
	if f.monitor != nil {
		options.Observer = f.monitor
	}
	server, err := deviceplugin.New(options, resource)
	if err != nil {
		return err
	}
	defer f.monitor.Resource(resource.Name(), server.Alive)()
	return server.Run(ctx)
}

// publisher returns the publisher of the node, or nil if the flags name no target.
func (f Flags) publisher(log *slog.Logger) (coordination.Publisher, error) {
	targets := f.publishing.targets
	if len(targets) == 0 {
		return nil, nil
	}
	client, sinks, err := f.sinks(log)
	if err != nil {
		return nil, fmt.Errorf("--publish: %w", err)
	}
	sys, err := f.Sysfs()
	if err != nil {
		return nil, err
	}
	read := publish.ReaderConfig{Sys: sys, KubeletDir: f.KubeletDir, Files: f.files(), Log: log}
	read.Pods = func(ctx context.Context, each func(*corev1.Pod)) error {
		return kubelet.ListPods(ctx, f.KubeletDir, each)
	}
	if f.Kubelet.Address != "" {
		read.Configz = kubelet.NewHTTPS(f.endpoint()).Configz
	}
	config := publish.Config{
		Reader: publish.NewReader(read), Sinks: sinks, Watch: publish.Watch(f.KubeletDir, log),
		Published: f.monitor.Published, Log: log,
	}
	if client != nil {
		config.Reach = client.Reach
	}
	return publish.New(config), nil
}

// sinks returns a sink per target, and the client of the API server if a target needs the API server.
func (f Flags) sinks(log *slog.Logger) (client *publish.Client, sinks []publish.Sink, err error) {
	targets := f.publishing.targets
	made := func(f publish.Facts) map[string]string {
		all := publish.BuildLabels(f)
		if targets.Has(publish.KubeNexus) {
			maps.Copy(all, publish.BuildKubeNexusLabels(f))
		}
		return all
	}
	for _, target := range targets {
		if target == publish.KubeNexus {
			continue // labels of the target nfd
		}
		if client == nil {
			if client, err = f.client(); err != nil {
				return nil, nil, err
			}
		}
		render, shared := publish.NodeTopology, false
		switch target {
		case publish.NRT:
			render, shared = publish.Zones, true
		case publish.NFD:
			namespace, err := namespace()
			if err != nil {
				return nil, nil, err
			}
			render = publish.NodeFeature(namespace, made)
		}
		sinks = append(sinks, publish.NewObjectSink(string(target), client, shared, render, log))
	}
	return client, sinks, nil
}

func (f Flags) client() (*publish.Client, error) {
	if f.NodeName == "" {
		return nil, errors.New("the node's name is not known; set --node-name, or NODE_NAME from spec.nodeName")
	}
	server, err := intent.ServerConfig(nil)
	if err != nil {
		return nil, err
	}
	return publish.NewClient(server, f.NodeName)
}

// namespace returns the namespace of this process's pod.
func namespace() (string, error) {
	name, err := os.ReadFile(account + "namespace")
	if err != nil {
		return "", fmt.Errorf("find the pod's namespace: %w", err)
	}
	return strings.TrimSpace(string(name)), nil
}

// withheldPause is the interval between two reads of the devices that claims hold.
const withheldPause = 5 * time.Second

// withheld are the devices that pods hold by a claim from an earlier time in DRA mode. The kubelet's device
// manager sees them as unhealthy until the claim is unprepared.
type withheld struct {
	dir    string // the DRA driver's
	cdiDir string // with the CDI specifications of claims
	log    *slog.Logger

	mu      sync.Mutex
	known   bool // the file was read once
	holders coordination.ClaimHolders
	changed system.Signal
	unread  system.Complaint
}

// newWithheld looks for the first time.
func newWithheld(kubeletDir, cdiDir string, log *slog.Logger) *withheld {
	w := &withheld{dir: filepath.Join(kubeletDir, "plugins", coordination.DRADriver), cdiDir: cdiDir, log: log}
	w.look()
	return w
}

// Latest implements coordination.Withheld.
func (w *withheld) Latest() (coordination.ClaimHolders, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.holders, w.changed.Next()
}

// Run reads the file periodically until ctx is done.
func (w *withheld) Run(ctx context.Context) {
	tick := time.NewTicker(withheldPause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_ = system.Survive(w.log, func() error { // the last known devices after a panic
				w.look()
				return nil
			})
		}
	}
}

// Remark returns the reason for withholding all devices, "" for none.
func (w *withheld) Remark() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.holders.Why()
}

// look reads the file. An unreadable file changes nothing: in the mode of device plugins no claims are
// prepared, so the devices of an earlier read include those of all current claims. Without an earlier read
// all devices are withheld, because any of them may belong to a pod with a claim.
func (w *withheld) look() {
	holders, err := coordination.ReadClaimHolders(w.dir, w.cdiDir)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.unread.IsNew(err) {
		w.log.Error("devices of claims not read; using the last known devices, withholding all if never read",
			"error", err)
	}
	if err == nil {
		w.known = true
		w.set(holders)
	} else if !w.known {
		w.set(coordination.ClaimHolders{coordination.EveryUnit: fmt.Sprintf("pods may have the devices by "+
			"claims that were prepared while the node was in DRA mode: %v; %s",
			err, coordination.ClaimsRemedy(w.dir))})
	}
}

// set changes the holders. Must be called with the lock.
func (w *withheld) set(holders coordination.ClaimHolders) {
	if maps.Equal(holders, w.holders) {
		return
	}
	if holders.Why() == "" {
		w.log.Warn("withholding devices of claims that were prepared while the node was in DRA mode",
			"devices", len(holders))
	}
	w.holders = holders
	w.changed.Raise()
}
