// SPDX-License-Identifier: Apache-2.0

// Package dra is Tandem's driver for Dynamic Resource Allocation, an alternative to the two device plugins; a
// node never runs both.
//
// The scheduler allocates devices from the node's published data and has no model of switches. The node
// therefore publishes pairs: a device "pair" is a GPU with a VF of its switch, and a claim for four pairs has
// a count of four. The published data is a pure function (package pool) of the node's devices (pool.Machine).
// The access of a claim's containers is determined when the kubelet prepares the claim (package
// claims) and is the same as with the device plugins, by the same code. Package dra combines these for the
// lifetime of a node: it publishes, serves the kubelet, watches health, and keeps device plugins and DRA
// apart.
//
//	scheduler                 API server                    this driver                       kubelet
//	    │                         │ ◀── ResourceSlices ───────── │ pool.Machine → pool            │
//	    │ ◀── slices, claims ──── │                              │                                │
//	    │ ─── claim: pair-… ────▶ │                              │                                │
//	    ┆                         ┆                              ┆                                ┆
//	    │                         │                              │ ◀──── NodePrepareResources ─── │
//	    │                         │                              │ claims: VFs of each container, │
//	    │                         │                              │ CDI spec, checkpoint           │
//	    │                         │ ◀── status.devices ───────── │ ───── names of CDI devices ──▶ │
//
// # State: source; bound; refresh; precedence
//
//   - devices of device-plugin pods: the kubelet's checkpoint without ended pods; its devices; every 10 s;
//     the checkpoint. Unreadable: unchanged; never read: nothing is published or prepared.
//   - names and ends of these pods: the Pods API, otherwise the API server; pods of the checkpoint; every 10
//     s; an end is final. A pod that the API server has lost ends after its grace period, once PodResources
//     does not list its devices.
//   - published devices: the plugins' packages and sysfs; the node's devices; each change, 5 s after a failed
//     reading; the reading. Unreadable: unchanged.
//   - devices of claims: claims.json; prepared claims; each change, every 10 s; the file. Never read: nothing
//     is published.
//   - claims with missing files: the disk; one error; every 10 s, with a repair; the disk.
//   - possibly orphaned claims: the API server; prepared claims; every 10 minutes, every 30 s while one is
//     missing; the API server. A claim with a pod that the kubelet runs is kept.
//   - pods and refusals, for people: the API server; prepared claims, 64 refusals; each Prepare, every 10
//     minutes; the API server.
//   - claim statuses to write: claims.json; one per claim; each Prepare, every 10 minutes; claims.json. An
//     existing status stays.
//   - features of the API server, and gates that lost fields: its version and dry runs; one, 2 gates; at the
//     start, every 10 minutes; the answer. A gate is on again by a good dry run an hour after its loss; never
//     read: nothing is published.
package dra

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/plugins/dra/claims"
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/rdma"
	"github.com/tandem-k8s/tandem/topology"
)

// Driver is the DRA driver of a node. It is made with New and does nothing before Run.
type Driver struct {
	config    Config
	viewer    *viewer
	publisher *publisher
	service   *claimService
	files     *fileRestorer
	server    *server
	teller    *teller
}

// parts are what all activities of a driver use.
type parts struct {
	config     Config
	complaints *complaints
	preparer   *claims.Preparer
	newest     *system.Newest[*view] // written only by the goroutine of followChanges, and by Run before
}

func newParts(config Config) parts {
	newest := &system.Newest[*view]{}
	newest.Set(&view{})
	return parts{
		config: config, complaints: newComplaints(config.Log), newest: newest,
		preparer: claims.New(claims.Options{
			Dir: PluginDir(config.KubeletDir), CDIDir: config.CDIDir, Host: config.Host, GPUs: config.GPUs,
			Policy: config.Policy, Alone: !config.Drain, Log: config.Log,
		}),
	}
}

// readClaims returns the prepared claims, or the last known ones if the present ones cannot be read, with the
// IDs that their devices have on a machine.
func (p parts) readClaims(machine pool.Machine) kubelet.Reading[[]claims.Claim] {
	prepared, err := p.preparer.Prepared(machine)
	p.complaints.reportResult("prepared claims not read; using the last known claims", err)
	if last := p.newest.Get(); err != nil && last.prepared.IsKnown() {
		prepared, err = claims.Present(machine, last.claims()), nil
	}
	return kubelet.Read(prepared, err)
}

// New returns a Driver. It creates the driver's directory and starts nothing.
func New(config Config) (*Driver, error) {
	if err := Check(config); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(PluginDir(config.KubeletDir), 0o750); err != nil {
		return nil, fmt.Errorf("make the driver's folder: %w", err)
	}
	config.Host.CDI, config.Host.PairsDir = nil, filepath.Join(config.RunDir, "claim-pairs")
	p := newParts(config)
	viewer := newViewer(p)
	publisher := &publisher{parts: p, viewer: viewer, again: system.NewTrigger()}
	service := &claimService{
		parts: p, viewer: viewer, publisher: publisher, owners: newOwners(), refused: system.NewTrigger(),
	}
	files := &fileRestorer{parts: p, failed: &system.Newest[error]{}}
	return &Driver{
		config: config, viewer: viewer, publisher: publisher, service: service, files: files,
		server: &server{claimService: service, fatal: make(chan error, 1)},
		teller: &teller{parts: p, owners: service.owners, files: files},
	}, nil
}

// Run serves the kubelet and publishes until ctx is done, or an error is fatal. It builds the first view
// before the kubelet can call. At the end it rejects new calls, answers the calls in flight, writes the
// queued statuses, and leaves the published slices to the next driver.
func (d *Driver) Run(ctx context.Context) error {
	if !d.config.Drain {
		leave, err := coordination.Enter(ctx, coordination.DRA, d.config.RunDir, d.config.KubeletDir)
		if err != nil {
			return err
		}
		defer leave()
	}
	if err := d.viewer.buildFirst(ctx); err != nil {
		return err
	}
	d.files.restoreBy(ctx, d.files.preparer.Restore)
	statuses := newStatuses(d.config.Client, d.config.Log)
	d.service.statuses = statuses
	defer statuses.queue.ShutDown()
	lasting := context.WithoutCancel(ctx) // until the last call is answered
	serving, stop := context.WithCancel(klog.NewContext(lasting, logr.FromSlogHandler(d.config.Log.Handler())))
	defer stop()
	helper, err := d.server.startHelper(serving)
	if err != nil {
		return err
	}
	writing, written := context.WithCancel(lasting)
	defer written()
	var writer sync.WaitGroup
	writer.Go(func() { statuses.writeQueued(writing) })
	err = d.runActivities(ctx, helper)
	d.server.calls.awaitCalls(callsLimit)
	helper.Stop()
	d.publisher.handing.Wait()
	statuses.queue.ShutDown()
	defer time.AfterFunc(statusLimit, written).Stop()
	writer.Wait()
	return err
}

// Maximum times that the end of the driver waits for calls of the kubelet, and for queued statuses.
const (
	callsLimit  = 10 * time.Second
	statusLimit = 3 * time.Second
)

// runActivities runs all activities besides the kubelet's calls.
func (d *Driver) runActivities(ctx context.Context, helper *kubeletplugin.Helper) error {
	g, ctx := errgroup.WithContext(ctx)
	background := func(run func(context.Context)) {
		g.Go(func() error { run(ctx); return nil })
	}
	g.Go(func() error { return d.viewer.followChanges(ctx) })
	g.Go(func() error { return d.publisher.publishViews(ctx, helper) })
	g.Go(func() error { return d.server.awaitFatal(ctx) })
	background(func(ctx context.Context) {
		d.viewer.gates.watchFeatures(ctx, d.viewer.complaints, d.viewer.changed.Fire)
	})
	background(d.viewer.watchHolders)
	background(newOrphanCollector(d.service).collectPeriodically)
	background(d.files.repairPeriodically)
	if d.config.GPUs != nil {
		g.Go(func() error { return d.config.GPUs.Run(ctx) })
	}
	if d.config.VFs != nil {
		g.Go(func() error { return d.config.VFs.Run(ctx) })
	}
	if !d.config.Drain { // a draining driver does not scan devices
		background(func(ctx context.Context) {
			coordination.Tell(ctx, d.config.RunDir, d.config.Socket, d.teller, d.config.Log)
		})
		if d.config.Unsound != nil {
			background(func(ctx context.Context) { d.teller.tellUnsound(ctx, d.config.Unsound) })
		}
	}
	return g.Wait()
}

// Role returns the role of the driver on its node.
func (d *Driver) Role() coordination.Role { return coordination.Serves }

// Alive returns an error if a part of the driver hangs that a restart would fix.
func (d *Driver) Alive(ctx context.Context) error { return d.viewer.awaitUpdate(ctx) }

// Resources returns the devices of the current view.
func (d *Driver) Resources() []*api.Resource { return d.teller.listResources(d.viewer.newest.Get()) }

// Kubelet tells the pods of the node, and the devices that they have from device plugins.
type Kubelet interface {
	// Pods returns all pods without their specs, or kubelet.ErrNoPodsAPI without a Pods API.
	Pods(ctx context.Context) ([]corev1.Pod, error)
	// List and Get are calls of PodResources; see kubelet.PodResources.
	List(ctx context.Context) (kubelet.View, error)
	Get(ctx context.Context, pod kubelet.Pod) (kubelet.View, error)
}

// kubeletSockets asks over the sockets in the kubelet's directory, with a new connection for each call.
type kubeletSockets struct{ dir string }

// Pods asks the Pods API.
func (s kubeletSockets) Pods(ctx context.Context) ([]corev1.Pod, error) {
	var all []corev1.Pod
	err := kubelet.ListPods(ctx, s.dir, func(pod *corev1.Pod) {
		all = append(all, corev1.Pod{ObjectMeta: pod.ObjectMeta, Status: pod.Status})
	})
	return all, err
}

// List asks PodResources. Without a socket, of which a kubelet leaves the file, the error is fs.ErrNotExist.
func (s kubeletSockets) List(ctx context.Context) (kubelet.View, error) {
	if _, err := os.Stat(kubelet.PodResourcesSocket(s.dir)); err != nil {
		return kubelet.View{}, fmt.Errorf("list pods of the kubelet: %w", err)
	}
	return s.askPodResources(func(r *kubelet.PodResources) (kubelet.View, error) { return r.List(ctx) })
}

// Get asks PodResources.
func (s kubeletSockets) Get(ctx context.Context, pod kubelet.Pod) (kubelet.View, error) {
	return s.askPodResources(func(r *kubelet.PodResources) (kubelet.View, error) { return r.Get(ctx, pod) })
}

func (s kubeletSockets) askPodResources(
	call func(*kubelet.PodResources) (kubelet.View, error),
) (kubelet.View, error) {
	resources, err := kubelet.NewPodResources(s.dir)
	if err != nil {
		return kubelet.View{}, err
	}
	defer resources.Close()
	return call(resources)
}

// Config configures a Driver.
type Config struct {
	NodeName   string // node name in Kubernetes, also the name of the pool
	PodUID     string // UID of the driver's pod; "" if no other pod replaces it without a gap
	KubeletDir string // the kubelet's root directory
	RunDir     string // the run directory: coordination.RunDir
	CDIDir     string // directory of CDI specs, /var/run/cdi
	Client     kubernetes.Interface

	// The driver's connections on the node, for simulations; nil for unix sockets in KubeletDir and RunDir.
	Kubelet Kubelet                                                      // the kubelet's pods
	Listen  func(ctx context.Context, path string) (net.Listener, error) // for the kubelet's calls
	Socket  coordination.Socket                                          // of the status

	GPUs *gpu.GPUs // may be nil; run by the driver, like the VFs
	VFs  *rdma.VFs // may be nil
	// NoGPUs is the reason why GPUs of the node are not published, for the status; "" without such GPUs.
	NoGPUs string
	// Tree reads the PCI tree, with devices at their actual locations.
	Tree func() (*topology.Tree, error)
	Host rdma.Host // locations of files on the machine; the driver sets PairsDir and CDI

	Policy     intent.Policy // alignment annotations that pods may use
	VFsPerPF   int           // maximum number of published VFs of a PF; 0 for all
	PairsAsVFs bool          // see pool.Options
	// Drain unprepares claims and does nothing else: for a node in device plugin mode on which pods with
	// claims still run.
	Drain bool

	Observer driverObserver // may be nil
	// Unsound receives the unsound devices of claims every 10 s, all of them each time. It must return
	// immediately. May be nil.
	Unsound func([]coordination.Unsound)
	Log     *slog.Logger
}

// driverObserver receives events of a Driver. Its methods must return immediately and be safe for concurrent
// use.
type driverObserver interface {
	// Registered reports that the kubelet knows the driver.
	Registered(driver string)
	// Claims reports a call of the kubelet to prepare or unprepare claims, and the number of failed claims.
	Claims(call string, took time.Duration, claims, failed int)
}

// PluginDir returns the driver's directory below the kubelet's, which persists over boots: it contains the
// socket and the prepared claims (package coordination).
func PluginDir(kubeletDir string) string { return filepath.Join(kubeletDir, "plugins", pool.Driver) }

// registryDir returns the directory in which the kubelet finds plugins other than device plugins.
func registryDir(kubeletDir string) string { return filepath.Join(kubeletDir, "plugins_registry") }

// Check returns an error in one sentence if the driver cannot work with the configured paths.
func Check(config Config) error {
	if config.NodeName == "" {
		return errors.New("publish the node's devices: the node's name is not known: " +
			"set --node-name, or NODE_NAME from spec.nodeName")
	}
	if _, err := os.Stat(registryDir(config.KubeletDir)); err != nil {
		return fmt.Errorf("find the kubelet's registry of plugins: %w: check that a kubelet runs on this node and "+
			"that --kubelet-dir is its root folder", err)
	}
	return nil
}
