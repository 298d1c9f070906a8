// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing/fstest"
	"time"

	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/plugins/dra"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/rdma"
	"github.com/tandem-k8s/tandem/test/apiserver/client"
	"github.com/tandem-k8s/tandem/test/simulation/hardware"
)

// process is a process of the driver.
type process struct {
	*sockets
	uid     string // of its pod
	node    *Node
	log     *slog.Logger
	latency time.Duration // of its requests, different for each process: no two act at the same time
	killed  atomic.Bool
	life    context.Context // ends when it is killed
	die     context.CancelFunc
	context context.Context // ends with the process
	cancel  context.CancelFunc
	done    chan error
	drains  bool                // see dra.Config
	lost    bool                // a feature gate went off meanwhile
	known   bool                // the kubelet has registered the driver
	aim     atomic.Pointer[aim] // the process is killed at a request
	ended   error               // the result, after the end
}

// errKilled is the error of a killed process's requests and files.
var errKilled = errors.New("the process was killed")

// start starts a process.
func (n *Node) start() (*process, error) {
	n.started++
	p := &process{
		sockets: newSockets(), node: n, uid: fmt.Sprint("driver-", n.started), done: make(chan error, 1),
		drains:  n.draining,
		latency: time.Millisecond + time.Duration(n.started%50)*17*time.Microsecond,
	}
	p.log = slog.New(ticking{n.log.Handler()}).With("process", p.uid)
	p.life, p.die = context.WithCancel(context.Background())
	p.context, p.cancel = context.WithCancel(context.Background())
	config, err := p.config()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", p.uid, err)
	}
	driver, err := dra.New(config)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", p.uid, err)
	}
	n.processes = append(n.processes, p)
	go func() { p.done <- driver.Run(p.context) }()
	return p, nil
}

// config returns the configuration of the driver.
func (p *process) config() (dra.Config, error) {
	n := p.node
	disk := system.Disk{Open: p.openFolder}
	gpus, err := gpu.Discover(hardware.Backend{Machine: n.hardware}, 0, p.log)
	if err != nil {
		return dra.Config{}, err
	}
	vfs, err := n.hardware.VFs(n.kubeletDir(), n.runDir(), n.path("pools.json"), disk, nil, p.log)
	if err != nil {
		return dra.Config{}, err
	}
	config := dra.Config{
		NodeName: nodeName, KubeletDir: n.kubeletDir(), RunDir: n.runDir(), CDIDir: n.cdiDir(),
		Client: client.New(transport{p}), Kubelet: n.old, Listen: p.listen, Socket: statusSocket{}, GPUs: gpus,
		VFs: vfs, Tree: n.hardware.Tree,
		Host: rdma.Host{
			Sys: n.hardware, Dev: fstest.MapFS{"infiniband/rdma_cm": &fstest.MapFile{}}, Disk: disk,
			DevinfoDir: n.path("devinfo"),
		},
		VFsPerPF: vfsPerPF, Drain: p.drains, Log: p.log,
	}
	if n.options.Rolling {
		config.PodUID = p.uid
	}
	return config, nil
}

// kill ends the process as SIGKILL does: its connections break, and no later request or file has an effect.
func (p *process) kill() {
	if !p.killed.Swap(true) {
		p.die()
		p.sockets.sever()
		p.cancel()
	}
}

// lives reports whether the process runs.
func (p *process) lives() bool { return !p.killed.Load() && p.context.Err() == nil && p.ended == nil }

// openFolder opens a folder for the process.
func (p *process) openFolder(dir string) (system.Folder, error) {
	if p.killed.Load() {
		return nil, errKilled
	}
	opened, err := p.node.disk.Disk().Folder(dir)
	return folder{p, dir, opened}, p.after(err)
}
