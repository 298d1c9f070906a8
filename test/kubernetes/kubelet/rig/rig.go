// SPDX-License-Identifier: Apache-2.0

// Package rig is a complete node for tests and the demo: a recorded machine laid out in a folder, the real
// kubelet managers on it (package node) and the two built daemons (package pair). It admits pods and returns,
// for every container, its devices, the best possible pairs, and the order of the kubelet's allocations.
package rig

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/node"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/pair"
	"github.com/tandem-k8s/tandem/test/machines"
)

// Setup is a machine and how its devices are offered.
type Setup struct {
	Bin             string // folder with the built daemons
	Machine         string // a name of test/machines
	VFsPerPF        int    // for PFs recorded without VFs
	ExcludeTopology bool   // the key of that name in the SR-IOV config: no NUMA hint for VFs
	Auto            bool   // no key of that name: the node decides
	Coordinated     bool   // false: the kubelet chooses at random, as with stock plugins
	PodsAPI         bool   // the kubelet serves the Pods API
	Watcher         bool   // the kubelet's plugin watcher finds the daemons; else they register at kubelet.sock
	Watched         bool   // the GPU daemon serves metrics and probes, at a port in its log
	NVML            string // the stand-in for NVIDIA's library, for machines with NVIDIA GPUs
}

// GPU returns the resource name of the machine's GPUs, AMD or NVIDIA, according to the machine's name.
func (s Setup) GPU() string {
	if strings.HasPrefix(s.Machine, "nv-") {
		return NVIDIA
	}
	return AMD
}

// String returns the machine and its number of VFs.
func (s Setup) String() string {
	vfs, hint := fmt.Sprint(s.VFsPerPF, " VFs per PF"), ""
	switch s.VFsPerPF {
	case 0:
		return s.Machine + ", no VFs"
	case 1:
		vfs = "1 VF per PF"
	}
	if s.ExcludeTopology {
		hint = " without NUMA hint"
	}
	return s.Machine + ", " + vfs + hint
}

// Rig is a running node with a running pair.
type Rig struct {
	*Machine
	Node  *node.Node
	Pair  *pair.Pair
	dir   string
	setup Setup
	held  holdings
}

// startTime limits the wait for the daemons' registration, which normally takes a fraction of a second.
const startTime = 20 * time.Second

// Start lays out the machine in a temporary folder and starts node and pair. It returns when the kubelet has
// all devices.
func Start(ctx context.Context, setup Setup) (*Rig, error) {
	dir, err := makeDir()
	if err != nil {
		return nil, fmt.Errorf("start rig: %w", err)
	}
	r := &Rig{dir: dir, setup: setup, held: holdings{}}
	if err := r.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", setup.Machine, err), r.Stop())
	}
	return r, nil
}

// makeDir returns a temporary folder, in memory if possible, because a machine is thousands of small files.
// It ignores $TMPDIR, because a unix socket's path must stay below 108 bytes.
func makeDir() (string, error) {
	if dir, err := os.MkdirTemp("/dev/shm", "tandem-"); err == nil {
		return dir, nil
	}
	return os.MkdirTemp("/tmp", "tandem-")
}

// Stop stops the pair and the node and removes the folder.
func (r *Rig) Stop() error {
	var errs []error
	if r.Pair != nil {
		errs = append(errs, r.Pair.Stop())
	}
	if r.Node != nil {
		errs = append(errs, r.Node.Stop())
	}
	return errors.Join(append(errs, os.RemoveAll(r.dir))...)
}

func (r *Rig) start(ctx context.Context) error {
	if err := r.layOut(); err != nil {
		return err
	}
	numa, err := node.ReadNUMA(os.DirFS(r.path("sys")), r.Tree.NUMANodes())
	if err != nil {
		return err
	}
	r.Node, err = node.Start(r.path("kubelet"), node.Options{
		NUMA: numa, PodsAPI: r.setup.PodsAPI, Watcher: r.setup.Watcher,
	})
	if err != nil {
		return err
	}
	if r.setup.Watcher { // the daemons look for the folder, and the kubelet makes it a moment later
		if err := os.Mkdir(node.Registry(r.path("kubelet")), 0o750); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	var flags, variables []string
	if r.GPU == NVIDIA {
		if flags, variables, err = r.installNVML(); err != nil {
			return err
		}
	}
	if r.setup.Watched {
		flags = append(flags, "--metrics-bind-address=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0")
	}
	r.Pair, err = pair.Start(pair.Options{
		Bin:            r.setup.Bin,
		Sysfs:          r.path("sys"),
		Dev:            r.path("dev"),
		Kubelet:        r.path("kubelet"),
		Run:            r.RunDir(),
		DevInfo:        r.path("devinfo"),
		Config:         r.path("config.json"),
		ResourcePrefix: resourcePrefix,
		Coordinated:    r.setup.Coordinated,
		GPUFlags:       flags,
		GPUVariables:   variables,
	})
	if err != nil {
		return err
	}
	return r.WaitReady(ctx)
}

// layOut creates the folders: the machine's sysfs, its device nodes, and the SR-IOV config.
func (r *Rig) layOut() error {
	recorded, err := machines.Load(r.setup.Machine, r.setup.VFsPerPF)
	if err != nil {
		return err
	}
	if err := os.CopyFS(r.path("sys"), recorded.FS()); err != nil {
		return err
	}
	if err := os.Mkdir(r.path("dev"), 0o755); err != nil {
		return err
	}
	if r.Machine, err = readMachine(os.DirFS(r.path("sys")), r.setup.GPU()); err != nil {
		return err
	}
	return r.Configure(r.setup.Auto)
}

// Configure writes the SR-IOV config, with the set-up's value of excludeTopology or, with auto, without the
// key.
func (r *Rig) Configure(auto bool) error {
	exclude := &r.setup.ExcludeTopology
	if auto {
		exclude = nil
	}
	return os.WriteFile(r.path("config.json"), r.sriovConfig(exclude), 0o644)
}

func (r *Rig) path(name string) string { return filepath.Join(r.dir, name) }

// WaitReady waits until the kubelet has all devices of the machine and, if coordinated, both daemons have
// joined.
func (r *Rig) WaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	var watchers sync.WaitGroup
	defer watchers.Wait()
	defer fail(nil)
	for _, daemon := range []*pair.Daemon{r.Pair.GPU, r.Pair.RDMA} {
		watchers.Go(func() { failOnExit(ctx, daemon, fail) })
	}
	for resource, all := range map[string]int{r.GPU: len(r.gpus), VF: len(r.vfs)} {
		if err := r.Node.WaitAllocatable(ctx, resource, all); err != nil {
			return err
		}
	}
	if !r.setup.Coordinated {
		return nil
	}
	return r.waitJoined(ctx)
}

func failOnExit(ctx context.Context, daemon *pair.Daemon, fail context.CancelCauseFunc) {
	select {
	case <-daemon.Exited():
		fail(errors.Join(fmt.Errorf("%s has ended", daemon.Name()), daemon.Err()))
	case <-ctx.Done():
	}
}

// PluginSockets returns the folder with the daemons' sockets for the kubelet.
func (r *Rig) PluginSockets() string { return r.socketFolder(r.setup.Watcher) }

// OtherSockets returns the folder for sockets that this rig does not use.
func (r *Rig) OtherSockets() string { return r.socketFolder(!r.setup.Watcher) }

func (r *Rig) socketFolder(watcher bool) string {
	if watcher {
		return node.Registry(r.path("kubelet"))
	}
	return filepath.Join(r.path("kubelet"), "device-plugins")
}

// Sys returns the machine's sysfs.
func (r *Rig) Sys() fs.FS { return os.DirFS(r.path("sys")) }

// KubeletDir returns the kubelet's folder.
func (r *Rig) KubeletDir() string { return r.path("kubelet") }

// RunDir returns the folder of the coordination socket.
func (r *Rig) RunDir() string { return r.path("run") }
