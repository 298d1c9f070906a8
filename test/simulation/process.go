// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing/fstest"

	"golang.org/x/sync/errgroup"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/intent"
	nodemodel "github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/plugins/deviceplugin"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/rdma"
	"github.com/tandem-k8s/tandem/test/model"
	"github.com/tandem-k8s/tandem/test/simulation/hardware"
)

// process is a process with the plugins of some resources.
type process struct {
	name      string
	resources []string
	node      *Node
	socket    *socket
	disk      *disk
	member    *coordination.Node
	log       *slog.Logger
	killed    atomic.Bool
	cancel    context.CancelFunc
	done      chan error
}

// bootID identifies a boot of the machine.
func bootID(boots int) string { return fmt.Sprint("boot-", boots) }

// start starts a process.
func (n *Node) start(name string, resources []string) (*process, error) {
	p := &process{
		name: name, resources: resources, node: n, socket: n.network.newSocket(),
		disk: newDisk(bootID(n.boots)),
		log:  n.log.With("process", name), done: make(chan error, 1),
	}
	config, err := p.config()
	if err != nil {
		return nil, err
	}
	if p.member, err = coordination.New(config); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	run := []func(context.Context) error{p.member.Run}
	for _, resource := range resources {
		work, err := p.offer(resource)
		if err != nil {
			return nil, fmt.Errorf("start %s: %w", name, err)
		}
		run = append(run, work...)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	g, ctx := errgroup.WithContext(ctx)
	for _, work := range run {
		g.Go(func() error { return work(ctx) })
	}
	go func() { p.done <- g.Wait() }()
	return p, nil
}

// config returns the configuration of the process's part in the coordination.
func (p *process) config() (config coordination.Config, err error) {
	n := p.node
	config = coordination.Config{
		RunDir: n.runDir(), Disk: p.disk.product(), SysRoot: "/nonexistent", KubeletDir: n.kubeletDir(),
		Log: p.log, Observer: n.observe,
		Socket: p.socket, OverSocket: !n.options.Direct, PodResources: n.records, Tree: n.hardware.Tree,
		Kubelet: n.kubeletFiles(),
	}
	config.Intent.Policy = n.options.policy()
	if n.options.Published {
		if config.Publisher, err = p.publisher(); err != nil {
			return config, err
		}
	}
	config.Intent.Choice = intent.Choice{intent.PodResources}
	if source := n.options.Source; source != "" {
		config.Intent.Choice = intent.Choice{source, intent.PodResources}
		config.Intent.Readers = map[intent.Source]intent.Reader{source: n.records.pods}
	}
	return config, nil
}

// offer returns the work of the plugin of a resource.
func (p *process) offer(resource string) ([]func(context.Context) error, error) {
	var plugin deviceplugin.Resource
	var beside func(context.Context) error
	member := p.member.Member(resource, kindOf(resource))
	if resource == model.GPUs {
		found, err := gpu.Discover(hardware.Backend{Machine: p.node.hardware}, 0, p.log)
		if err != nil {
			return nil, err
		}
		found.Heed(p.node.hardware.Monitor())
		plugin, beside = gpu.NewPlugin(resource, found, member, p.log), found.Run
	} else {
		n := p.node
		hinting := func() (nodemodel.Hinting, bool) {
			h, _ := p.member.Hinting()
			return h, len(h.GPUs) > 0
		}
		found, err := n.hardware.VFs(n.kubeletDir(), n.runDir(), n.poolsFile(), p.disk.product(), hinting, p.log)
		if err != nil {
			return nil, err
		}
		found.Heed(n.hardware.Monitor())
		host := rdma.Host{
			Disk: p.disk.product(), Sys: p.node.hardware, Dev: &n.dev,
			DevinfoDir: n.devinfoDir(), PairsDir: filepath.Join(p.node.runDir(), "pairs"),
		}
		plugin, beside = rdma.NewPlugin(resource, found, host, member, p.log), found.Run
	}
	server, err := deviceplugin.New(deviceplugin.Options{
		KubeletDir: p.node.kubeletDir(), Registration: deviceplugin.Register, Preferred: true,
		Serve: func(ctx context.Context, plugin v1beta1.DevicePluginServer) error {
			return p.node.endpoints.serve(ctx, p, resource, plugin)
		},
		Log: p.log,
	}, plugin)
	if err != nil {
		return nil, err
	}
	return []func(context.Context) error{beside, server.Run}, nil
}

// devices are the device nodes of the VFs.
type devices struct{ away atomic.Bool }

// Open opens the common node of RDMA.
func (d *devices) Open(name string) (fs.File, error) {
	if d.away.Load() {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return fstest.MapFS{commonNode: &fstest.MapFile{}}.Open(name)
}

// commonNode is the common device node of RDMA below /dev.
const commonNode = "infiniband/rdma_cm"

// kill ends the process as SIGKILL does: its connections break, its lock is free, and what the server has
// open changes no more. Damage changes files before another process reads the files. Must be called at most
// once; [Node.bury] waits for the end.
func (p *process) kill(damage func() error) error {
	p.killed.Store(true)
	err := errors.Join(p.leaveRunDir(), damage())
	p.socket.kill()
	p.cancel()
	return err
}

// leaveRunDir ends the writes of a server. Its lock is that of a removed file: others take a new one.
func (p *process) leaveRunDir() error {
	if !p.serves() {
		return nil
	}
	lock := filepath.Join(p.node.runDir(), "lock")
	if err := errors.Join(p.disk.abandon(), os.Remove(lock)); err != nil {
		return fmt.Errorf("end the writes of %s: %w", p.name, err)
	}
	return nil
}

// serves reports whether the process has the coordination server.
func (p *process) serves() bool { return p.member.Role() == coordination.Serves }
