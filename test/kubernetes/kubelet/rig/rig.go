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
	"sync"
	"time"

	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/node"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/pair"
	"github.com/tandem-k8s/tandem/test/kubernetes/machine"
)

// The requested resources.
const (
	AMD    = machine.AMD
	NVIDIA = machine.NVIDIA
	VF     = machine.VF
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
	*machine.Machine
	Node  *node.Node
	Pair  *pair.Pair
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
	laid, err := machine.LayOut(dir, setup.Machine, setup.VFsPerPF, setup.NVML)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	r := &Rig{Machine: laid, setup: setup, held: holdings{}}
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
	return errors.Join(append(errs, os.RemoveAll(r.Dir))...)
}

func (r *Rig) start(ctx context.Context) error {
	if err := r.Configure(r.setup.Auto); err != nil {
		return err
	}
	numa, err := node.ReadNUMA(os.DirFS(r.Path("sys")), r.Tree.NUMANodes())
	if err != nil {
		return err
	}
	r.Node, err = node.Start(r.Path("kubelet"), node.Options{
		NUMA: numa, PodsAPI: r.setup.PodsAPI, Watcher: r.setup.Watcher,
	})
	if err != nil {
		return err
	}
	if r.setup.Watcher { // the daemons look for the folder, and the kubelet makes it a moment later
		if err := os.Mkdir(node.Registry(r.Path("kubelet")), 0o750); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	flags, variables := r.Driver()
	if r.setup.Watched {
		flags = append(flags, "--metrics-bind-address=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0")
	}
	r.Pair, err = pair.Start(pair.Options{
		Bin:            r.setup.Bin,
		Sysfs:          r.Path("sys"),
		Dev:            r.Path("dev"),
		Kubelet:        r.Path("kubelet"),
		Run:            r.RunDir(),
		DevInfo:        r.Path("devinfo"),
		Config:         r.Path("config.json"),
		ResourcePrefix: machine.Prefix,
		Coordinated:    r.setup.Coordinated,
		GPUFlags:       flags,
		GPUVariables:   variables,
	})
	if err != nil {
		return err
	}
	return r.WaitReady(ctx)
}

// Configure writes the SR-IOV config, with the set-up's value of excludeTopology or, with auto, without the
// key.
func (r *Rig) Configure(auto bool) error {
	keys := map[string]any{"tandem": map[string]any{
		"pairs": true, "variables": []string{"VLLM_GPU_NIC_PCIE_MAPPING", "NCCL_IB_HCA"},
	}}
	if !auto {
		keys["excludeTopology"] = r.setup.ExcludeTopology
	}
	return os.WriteFile(r.Path("config.json"), r.Config(keys), 0o644)
}

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
	for resource, all := range map[string]int{r.GPU: r.GPUs(), VF: r.VFs()} {
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
		return node.Registry(r.Path("kubelet"))
	}
	return filepath.Join(r.Path("kubelet"), "device-plugins")
}

// Sys returns the machine's sysfs.
func (r *Rig) Sys() fs.FS { return os.DirFS(r.Path("sys")) }

// KubeletDir returns the kubelet's folder.
func (r *Rig) KubeletDir() string { return r.Path("kubelet") }

// RunDir returns the folder of the coordination socket.
func (r *Rig) RunDir() string { return r.Path("run") }
