// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/mode"
	"github.com/tandem-k8s/tandem/dra/claims"
	"github.com/tandem-k8s/tandem/dra/inventory"
	"github.com/tandem-k8s/tandem/dra/pool"
)

// Driver is the DRA driver of a node. It is made with New and does nothing before Run.
type Driver struct {
	Config
	preparer *claims.Preparer
	gates    *gates
	newest   *latest[*view] // what there is; written by the goroutine of follow alone
	// who holds devices without a claim, by device ID; nil while that is not known
	holders *latest[map[string]string]
	// why files of prepared claims are missing; nil where none is
	unrestored *latest[error]
	build      chan struct{}      // holds a token when what there is has to be put together anew
	again      chan struct{}      // holds a token when it has to be published again, the same as it is
	refused    chan struct{}      // holds a token when a claim was not prepared
	asks       chan chan struct{} // closed by follow once it has put together anew what there is
	fatal      chan error         // why the driver cannot go on
	calls      calls
	handing    sync.WaitGroup // what is handed to the helper
	owners     *owners
	statuses   *statuses // made by Run

	complaints complaints
	recorded   map[string]recordedPod // by UID; of the goroutine that looks who holds devices

	// of the goroutine of follow, and of Run before there is one
	machine inventory.Machine // without those who hold devices
	looks   int               // that led to it
	told    []string          // notes that were logged
}

var _ kubeletplugin.DRAPlugin = (*Driver)(nil)

// New makes a Driver. It makes the driver's folder, and starts nothing.
func New(config Config) (*Driver, error) {
	if err := Check(config); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(PluginDir(config.KubeletDir), 0o750); err != nil {
		return nil, fmt.Errorf("make the driver's folder: %w", err)
	}
	d := &Driver{
		Config: config,
		newest: newLatest(&view{}), holders: newLatest(map[string]string(nil)),
		unrestored: newLatest(error(nil)),
		build:      make(chan struct{}, 1), again: make(chan struct{}, 1), refused: make(chan struct{}, 1),
		asks: make(chan chan struct{}), fatal: make(chan error, 1),
		owners: newOwners(), recorded: map[string]recordedPod{},
	}
	d.Host.CDI, d.Host.PairsDir = nil, filepath.Join(config.RunDir, "claim-pairs")
	d.gates = newGates(config.Client, config.NodeName, config.Log)
	options := claims.Options{
		Dir: PluginDir(config.KubeletDir), CDIDir: config.CDIDir, Host: d.Host, Policy: config.Policy,
		Alone: !config.Drain, Pod: d.pod, Rebind: d.rebind, Log: config.Log,
	}
	if config.GPUs != nil {
		options.GPUs = config.GPUs
	}
	if config.VFs != nil {
		options.VFs = config.VFs
	}
	d.preparer = claims.New(options)
	return d, nil
}

func (d *Driver) pod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	return d.Client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
}

// Run serves the kubelet and publishes until ctx is done, or it cannot go on. At the start it knows what
// there is before the kubelet can ask. At the end it takes no more calls, answers those that it has, writes
// what there is to say of them, and leaves the published slices to whoever follows.
func (d *Driver) Run(ctx context.Context) error {
	if !d.Drain {
		leave, err := coordination.Enter(ctx, mode.DRA, d.RunDir, d.KubeletDir)
		if err != nil {
			return err
		}
		defer leave()
	}
	sources, err := d.look()
	if err != nil {
		return err
	}
	d.machine = sources.machine
	d.findHolders(ctx)
	d.put()
	if err := d.preparer.Restore(ctx, d.newest.get().State); err != nil {
		d.complain(filesMissing, err)
		d.unrestored.set(err)
	}
	d.statuses = newStatuses(d.Client, d.Log)
	defer d.statuses.queue.ShutDown()
	lasting := context.WithoutCancel(ctx) // until the last call is answered
	serving, stop := context.WithCancel(klog.NewContext(lasting, logr.FromSlogHandler(d.Log.Handler())))
	defer stop()
	helper, err := d.start(serving)
	if err != nil {
		return err
	}
	writing, written := context.WithCancel(lasting)
	var statuses sync.WaitGroup
	statuses.Go(func() { d.statuses.run(writing) })
	err = d.work(ctx, helper, sources)
	d.calls.close(callsLimit)
	helper.Stop()
	d.handing.Wait()
	d.statuses.close(statusLimit)
	written()
	statuses.Wait()
	return err
}

// How long the end of the driver waits for calls of the kubelet, and for what is to be written of them.
const (
	callsLimit  = 10 * time.Second
	statusLimit = 3 * time.Second
)

// work does all that goes on beside the kubelet's calls.
func (d *Driver) work(ctx context.Context, helper *kubeletplugin.Helper, sources sources) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return d.follow(ctx, sources) })
	g.Go(func() error { return d.publish(ctx, helper) })
	g.Go(func() error { d.watchGates(ctx); return nil })
	g.Go(func() error { d.watchHolders(ctx); return nil })
	g.Go(func() error { d.watchClaims(ctx); return nil })
	g.Go(func() error { d.watchFiles(ctx); return nil })
	if d.GPUs != nil {
		g.Go(func() error { return d.GPUs.Run(ctx) })
	}
	if d.VFs != nil {
		g.Go(func() error { return d.VFs.Run(ctx) })
	}
	if !d.Drain {
		g.Go(func() error { coordination.Tell(ctx, d.RunDir, d, d.Log); return nil })
	}
	g.Go(func() error {
		select {
		case err := <-d.fatal:
			return err
		case <-ctx.Done():
			return nil
		}
	})
	return g.Wait()
}

// start opens the sockets: from then on the kubelet may ask.
func (d *Driver) start(ctx context.Context) (*kubeletplugin.Helper, error) {
	helper, err := kubeletplugin.Start(ctx, d,
		kubeletplugin.DriverName(pool.Driver),
		kubeletplugin.NodeName(d.NodeName),
		kubeletplugin.KubeClient(d.Client),
		kubeletplugin.PluginDataDirectoryPath(PluginDir(d.KubeletDir)),
		kubeletplugin.RegistrarDirectoryPath(registryDir(d.KubeletDir)),
		kubeletplugin.RollingUpdate(types.UID(d.PodUID)),
		kubeletplugin.Serialize(true),
		kubeletplugin.GRPCInterceptor(d.intercept),
	)
	if err != nil {
		return nil, fmt.Errorf("serve the kubelet: %w", err)
	}
	return helper, nil
}

// poke leaves a token in a channel that holds one.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
